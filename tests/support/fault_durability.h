// Records a program's changes on the disk that are not durable yet, so that a power loss can be simulated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/fault_setup.h"

namespace fault {

// A file or directory, held open so that it is identified independently of its names.
struct Inode {
  explicit Inode(int held) : fd(held) { fstat(fd, &status); }
  ~Inode() { syscall(SYS_close, fd); }
  Inode(const Inode&) = delete;
  Inode& operator=(const Inode&) = delete;

  bool is(const struct stat& other) const {
    return status.st_dev == other.st_dev && status.st_ino == other.st_ino;
  }
  int fd;
  struct stat status {};
};
using InodePtr = std::shared_ptr<Inode>;

struct Name {
  InodePtr directory;
  std::string text;
};

// The file or directory of a name before it was removed or replaced.
struct Lost {
  Name name;
  InodePtr inode;
  std::string kept;  // a hard link to it; an empty directory is created again instead
};

// A change of names that is not durable yet. Names are relative to open directories, so that renaming a
// directory does not affect the changes in it.
struct Change {
  InodePtr inode;  // the created or moved inode
  Name from, to;   // a creation has no `from`; a removal has neither
  Lost lost;
  std::vector<InodePtr> awaits;  // directories that had no fsync after the change
  unsigned flags = 0;            // the flags of renameat2
};

// The caller must hold a mutex: there is one record per process.

// The Inode of a name, always the same object for the same inode; null if it does not exist.
InodePtr inode_at(const Entry& entry);
Name name_of(const Entry& entry);
// Keeps the file or directory of a name, so that it can be restored.
Lost keep(const Entry& entry);

void note_write(int fd);
void note_sync(int fd);
void note_change(Change change);
// Clears the record. A forked child calls this, because it must not undo its parent's changes.
void forget_all();
// Undoes all changes that are not durable.
void lose_power();

}  // namespace fault
