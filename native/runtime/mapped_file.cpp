#include "runtime/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include <algorithm>
#include <memory>

namespace pocket {

namespace {

constexpr size_t kLarge = size_t{2} << 20;  // bytes of a large page

struct File {
  explicit File(const std::string& path) : number(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (number >= 0) close(number);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int number;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const File file(path);
  struct stat status;
  if (file.number < 0 || fstat(file.number, &status) != 0 || status.st_size <= 0) return;
  bytes_ = static_cast<size_t>(status.st_size);
  inode_ = status.st_ino;
  if (map(file.number)) useLargePages(file.number);
}

MappedFile::~MappedFile() { unmap(); }

// At a multiple of the large page's size, which the system wants of a file's start for all of its pages.
bool MappedFile::map(int file) {
  const size_t reservedBytes = bytes_ + kLarge;
  void* reserved = mmap(nullptr, reservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return false;
  char* const start = static_cast<char*>(reserved);
  char* const at = start + (kLarge - reinterpret_cast<uintptr_t>(start) % kLarge) % kLarge;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (bytes_ + page - 1) / page * page;
  if (at > start) munmap(start, static_cast<size_t>(at - start));
  if (at + mapped < start + reservedBytes)
    munmap(at + mapped, static_cast<size_t>(start + reservedBytes - at) - mapped);
  if (mmap(at, bytes_, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(at, mapped);
    return false;
  }
  data_ = at;
#if defined(__linux__)
  madvise(data_, bytes_, MADV_HUGEPAGE);  // a system without them says no, and nothing changes
#endif
  return true;
}

void MappedFile::unmap() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
}

// Reads a byte of each large page, which brings the others with it.
void MappedFile::touch(size_t start, size_t end) const {
  for (size_t at = start; at < end; at += kLarge) static_cast<void>(*static_cast<volatile const char*>(data_ + at));
}

const void* MappedFile::translate(const void* other) const {
  const uintptr_t at = reinterpret_cast<uintptr_t>(other);
  const auto above =
      std::upper_bound(others_.begin(), others_.end(), at,
                       [](uintptr_t address, const OtherMapping& mapping) { return address < mapping.start; });
  if (above == others_.begin()) return other;
  const OtherMapping& mapping = above[-1];
  const size_t offset = mapping.offset + (at - mapping.start);
  return at < mapping.end && offset < bytes_ ? data_ + offset : other;
}

#if defined(__linux__)

namespace {

template <class Use>
void forEachLine(const char* path, const Use& use) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> lines(std::fopen(path, "re"),
                                                              [](std::FILE* file) { return std::fclose(file); });
  char line[4096];
  while (lines != nullptr && std::fgets(line, sizeof line, lines.get()) != nullptr) use(line);
}

}  // namespace

// The list is in the order of addresses. A file is known by its number there; that of another file system may have the
// same, so a mapping's first bytes are compared.
void MappedFile::findOtherMappings() {
  others_.clear();
  if (data_ == nullptr) return;
  forEachLine("/proc/self/maps", [this](const char* line) {
    unsigned long from = 0, to = 0, offset = 0, inode = 0;
    char rights[5] = "";
    if (std::sscanf(line, "%lx-%lx %4s %lx %*s %lu", &from, &to, rights, &offset, &inode) != 5) return;
    if (inode != inode_ || rights[0] != 'r' || offset >= bytes_) return;
    const char* other = reinterpret_cast<const char*>(from);
    if (other == data_) return;
    const size_t compared = std::min({size_t{4096}, to - from, bytes_ - offset});
    if (std::memcmp(other, data_ + offset, compared) == 0) others_.push_back({from, to, offset});
  });
}

// Whether the system has mapped most of [start, end), which was touched, in large pages; false where it does not say.
bool MappedFile::isLarge(size_t start, size_t end) const {
  const uintptr_t here = reinterpret_cast<uintptr_t>(data_);
  bool inside = false;
  size_t large = 0;
  forEachLine("/proc/self/smaps", [&](const char* line) {
    unsigned long from = 0, to = 0, kibibytes = 0;
    if (std::sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = from >= here && from < here + bytes_;
    else if (inside && std::sscanf(line, "FilePmdMapped: %lu kB", &kibibytes) == 1) large += size_t{kibibytes} << 10;
  });
  return large * 2 > end - start;
}

// The system holds a file in the pages that it was read or written with, and maps those that are large and in place.
void MappedFile::useLargePages(int file) {
  if (bytes_ < 4 * kLarge) return;
  touch(0, bytes_);
  if (!isLarge(0, bytes_)) reread(file);
  // Rows of an embedding that are not read must not count as memory of this process.
  if (data_ != nullptr) madvise(data_, bytes_, MADV_DONTNEED);
}

// One page is tried first: where the file system has no large ones, or another process has the file mapped, the rest is
// left alone.
void MappedFile::reread(int file) {
  const size_t probe = bytes_ / kLarge / 2 * kLarge;
  const auto forget = [&](size_t start, size_t end) {
    unmap();
    return posix_fadvise(file, static_cast<off_t>(start), static_cast<off_t>(end - start), POSIX_FADV_DONTNEED) == 0 &&
           map(file);
  };
  fdatasync(file);  // what is still to be written stays where it is
  if (!forget(probe, probe + kLarge)) return;
  touch(probe, probe + kLarge);
  if (!isLarge(probe, probe + kLarge) || !forget(0, bytes_)) return;
  touch(0, bytes_);
}

#else

void MappedFile::findOtherMappings() {}
void MappedFile::useLargePages(int) {}
void MappedFile::reread(int) {}

#endif

}  // namespace pocket
