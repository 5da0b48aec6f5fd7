// A file that is mapped may shrink, or its disk fail: reading the memory ends a program by SIGBUS then,
// without a word. Here it gets one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace stagegpt {

// From now on such a fault prints "PROGRAM: cannot read FILE: …" and ends the process with exit code 1, as
// any failure does. Faults elsewhere are left to the handler before it. `program` lives as long as the
// process.
void explain_mapping_faults(const char* program);

// Tells the handler of a file's mapping, until it is forgotten. There is room for some hundred; of further
// ones the handler does not know.
void note_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path);
void forget_mapping(std::span<const std::byte> bytes);

}  // namespace stagegpt
