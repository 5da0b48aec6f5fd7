#include "tests/support/fault_durability.h"

#include <cerrno>
#include <utility>

namespace fault {
namespace {

struct Account {
  long n_kept = 0;
  std::vector<std::weak_ptr<Inode>> inodes = {};
  std::vector<InodePtr> written = {};  // files with writes since their last fsync
  std::vector<Change> changes = {};
};

Account& account() {
  static Account& account = *new Account;  // never destroyed, like the settings
  return account;
}

InodePtr inode_at(int at, const std::string& name, int flags) {
  const int fd = hold(at, name.c_str(), flags);
  if (fd < 0 && errno != ENOENT) refuse("cannot hold " + name);
  if (fd < 0) return nullptr;
  auto opened = std::make_shared<Inode>(fd);
  auto& inodes = account().inodes;
  std::erase_if(inodes, [](const auto& inode) { return inode.expired(); });
  for (const auto& known : inodes) {
    if (InodePtr inode = known.lock(); inode->is(opened->status)) return inode;
  }
  inodes.push_back(opened);
  return opened;
}

std::string path_to_keep() {
  return settings().keep + "/" + std::to_string(getpid()) + "." + std::to_string(++account().n_kept);
}

void restore(const Lost& lost) {
  const int at = lost.name.directory->fd;
  const char* name = lost.name.text.c_str();
  struct stat& status = lost.inode->status;
  if (!S_ISDIR(status.st_mode)) {
    linkat(AT_FDCWD, lost.kept.c_str(), at, name, 0);
  } else if (syscall(SYS_mkdirat, at, name, status.st_mode & ALLPERMS) == 0) {
    // Earlier changes in this directory are undone in the new one.
    syscall(SYS_close, lost.inode->fd);
    lost.inode->fd = hold(at, name, O_DIRECTORY);
    fstat(lost.inode->fd, &status);
  }
}

void undo(const Change& change) {
  if (change.inode != nullptr) {
    const int at = change.to.directory->fd;
    const char* name = change.to.text.c_str();
    struct stat there;
    // The name refers to another inode if a later change was made durable and this one was not.
    if (fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) != 0 || !change.inode->is(there)) return;
    // A created inode is lost with its contents, even if they are durable: it has no name any more.
    const bool created = change.from.directory == nullptr;
    const std::string back = created ? path_to_keep() : change.from.text;
    syscall(SYS_renameat2, at, name, created ? AT_FDCWD : change.from.directory->fd, back.c_str(),
            change.flags);
  }
  if (change.lost.inode != nullptr) restore(change.lost);
}

}  // namespace

InodePtr inode_at(const Entry& entry) { return inode_at(entry.parent, entry.name, O_NOFOLLOW); }

Name name_of(const Entry& entry) { return {inode_at(entry.parent, ".", O_DIRECTORY), entry.name}; }

Lost keep(const Entry& entry) {
  Lost lost{name_of(entry), inode_at(entry), ""};
  if (lost.inode == nullptr || S_ISDIR(lost.inode->status.st_mode)) return lost;
  lost.kept = path_to_keep();
  if (linkat(entry.parent, entry.name.c_str(), AT_FDCWD, lost.kept.c_str(), 0) == 0) return lost;
  refuse("FAULT_KEEP cannot hold a hard link to " + entry.path);
}

void note_write(int fd) {
  if (!settings().loses_power()) return;
  InodePtr file = inode_at(AT_FDCWD, proc_path(fd), 0);
  std::erase(account().written, file);
  account().written.push_back(file);
}

void note_sync(int fd) {
  if (!settings().loses_power()) return;
  const InodePtr synced = inode_at(AT_FDCWD, proc_path(fd), 0);
  std::erase(account().written, synced);
  std::erase_if(account().changes, [&](Change& change) {
    std::erase(change.awaits, synced);
    return change.awaits.empty();
  });
}

void note_change(Change change) { account().changes.push_back(std::move(change)); }

void forget_all() { account() = {}; }

void lose_power() {
  Account& now = account();
  for (const InodePtr& file : now.written) {
    if (fstat(file->fd, &file->status) == 0) truncate(proc_path(file->fd).c_str(), file->status.st_size / 2);
  }
  now.written.clear();
  std::for_each(now.changes.rbegin(), now.changes.rend(), undo);
  now.changes.clear();
}

}  // namespace fault
