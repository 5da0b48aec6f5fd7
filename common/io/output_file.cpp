#include "common/io/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace stagegpt {

OutputFile::OutputFile(const std::filesystem::path& path)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!fd_.is_open()) fail_to_write(path_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == kSmallBlock && !writing_) grow();
    const std::size_t n = std::min(bytes.size(), capacity() - filled_);
    std::memcpy(filling_.get() + filled_, bytes.data(), n);
    filled_ += n;
    bytes = bytes.subspan(n);
    if (filled_ == kBlock) write_full_block();
  }
}

void OutputFile::grow() {
  AlignedBlock block = make_aligned_block(kBlock);
  std::memcpy(block.get(), filling_.get(), filled_);
  filling_ = std::move(block);
  writing_ = make_aligned_block(kBlock);
}

void OutputFile::write_full_block() {
  if (write_done_.valid()) write_done_.get();
  std::swap(filling_, writing_);
  filled_ = 0;
  fcntl(fd_.get(), F_SETFL, O_DIRECT);  // may fail: not all file systems support O_DIRECT
  write_done_ =
      std::async(std::launch::async, [this] { write_fully(fd_, std::span(writing_.get(), kBlock), path_); });
}

void OutputFile::write_rest() {
  if (write_done_.valid()) write_done_.get();
  write_fully(fd_, std::span(filling_.get(), filled_), path_);
  filled_ = 0;
}

void OutputFile::rewind() {
  write_rest();
  if (lseek(fd_.get(), 0, SEEK_SET) != 0) fail_to_write(path_);
}

void OutputFile::sync() {
  write_rest();
  if (fsync(fd_.get()) != 0) fail_to_write(path_);
}

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) fail_to_write(path_);
}

bool AppendFile::add(std::string_view bytes) {
  unwritten_ += bytes;
  while (!unwritten_.empty()) {
    const ssize_t written = write(file_.get(), unwritten_.data(), unwritten_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    unwritten_.erase(0, static_cast<std::size_t>(written));
  }
  return true;
}

void AppendFile::sync() {
  if (!add("") || fsync(file_.get()) != 0) fail_to_write(path_);
}

}  // namespace stagegpt
