// manifest.json: name, size and hash of every file of a checkpoint, and its own hash. It is written last, so
// a directory that has one is whole.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "common/io/hashed_file.h"

namespace stagegpt {

// The file of a checkpoint that is no part of the model.
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

// Writes DIRECTORY/manifest.json for files that are there. Failures throw as OutputFile's do.
void write_manifest(const std::filesystem::path& directory, const std::vector<FileEntry>& files);

// Takes a manifest's text apart. Throws UserError unless it is, to the letter, what write_manifest() writes.
std::vector<FileEntry> parse_manifest(std::string_view text);

// What is read: all files from the disk; or those of the model, not the optimizer's, and left in the page
// cache for who reads them next.
enum class Verified { all, model };

// Reads what the manifest lists, and returns the list. Throws UserError, naming the file, where the
// manifest is missing or broken, or a file is missing or not what it was.
std::vector<FileEntry> verify_manifest(
    const std::filesystem::path& directory, Verified what = Verified::all, const Heartbeat& beat = [] {});
// The model's files of a directory that a user names by `flag`, which may be somebody else's and have no
// manifest.
void verify_named(const std::filesystem::path& directory, std::string_view flag);

}  // namespace stagegpt
