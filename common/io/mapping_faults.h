// Reading a memory-mapped file raises SIGBUS if the file has been truncated or its disk fails. By default
// that ends the program without a message. This file adds the message.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace stagegpt {

// Installs a handler of SIGBUS. For a fault in a mapped file it prints "PROGRAM: cannot read FILE: …" and
// ends the process with exit code 1. Other faults are left to the previous handler. `program` must live as
// long as the process.
void explain_mapping_faults(const char* program);

// Registers the mapping of a file with the handler, and removes it. At most 256 mappings are registered; the
// handler ignores any further ones.
void note_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path);
void forget_mapping(std::span<const std::byte> bytes);

}  // namespace stagegpt
