// manifest.json: the name, size and hash of every file of a checkpoint, and its own hash. It is written last,
// so a directory with a manifest is complete.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "common/io/content_hash.h"

namespace stagegpt {

// The name of the files with Adam's moments, for tensor_files.h. They are not part of the model.
inline constexpr const char* kOptimizerTensors = "optimizer";

// Writes DIRECTORY/manifest.json for existing files. Errors are those of OutputFile.
void write_manifest(const std::filesystem::path& directory, const std::vector<FileEntry>& files);

// Parses a manifest. Throws UserError unless the text is exactly what write_manifest() writes.
std::vector<FileEntry> parse_manifest(std::string_view text);

// Which files are read. all: every file, past the page cache, from the disk. model: all except the
// optimizer's, and they are left in the page cache, because they are loaded next.
enum class Verified { all, model };

// Reads the files that the manifest lists, and returns the list. Throws UserError, which names the file, if
// the manifest is missing or invalid, or if a file is missing or has changed.
std::vector<FileEntry> verify_manifest(
    const std::filesystem::path& directory, Verified what = Verified::all, const Heartbeat& beat = [] {});
// Verifies the model's files in a directory that the user named by `flag`. Does nothing if it has no
// manifest, because another program may have written it.
void verify_named(
    const std::filesystem::path& directory, std::string_view flag, const Heartbeat& beat = [] {});

}  // namespace stagegpt
