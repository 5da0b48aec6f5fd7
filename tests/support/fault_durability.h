// What a program has changed on the disk and not made durable yet, so that it can be lost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/fault_setup.h"

namespace fault {

// A file or directory, held open so that it is the same one whatever happens to its names.
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

// What a name stood for before it was removed or replaced.
struct Lost {
  Name name;
  InodePtr inode;
  std::string kept;  // a hard link to it; a directory, being empty, is made anew
};

// A change of names that is not durable yet. Names are relative to directories held open, so a directory that
// is renamed takes its changes along.
struct Change {
  InodePtr inode;  // what was created or moved
  Name from, to;   // a creation has no `from`, a removal neither
  Lost lost;
  std::vector<InodePtr> awaits;  // the directories that still need an fsync
  unsigned flags = 0;            // of renameat2
};

// Whoever calls these holds a mutex: there is one account of a process.

// The one Inode for what a name stands for; null where it does not exist.
InodePtr inode_at(const Entry& entry);
Name name_of(const Entry& entry);
// Holds on to what a name stands for, that it can be put back.
Lost keep(const Entry& entry);

void note_write(int fd);
void note_sync(int fd);
void note_change(Change change);
// A forked child has its parent's account, which is not its own to lose.
void forget_all();
// Undoes all that is not durable.
void lose_power();

}  // namespace fault
