// A file mapped for reading, from front to back in one piece, in large pages where the system has them: a decode step
// reads all weights once, and in pages of 4 KiB a part of its time goes to finding out where they lie. It knows nothing
// of what is in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pocket {

class MappedFile {
 public:
  // A file that cannot be mapped is no failure: there is no data then. On Linux, pages of the file that the system
  // holds in small pieces are read once more from the disk if that makes them large.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Looks for other mappings of the file in this process, as they are now. Does so on Linux only.
  void findOtherMappings();
  // Where the byte at `other`, which lies in one of those, lies in this; else `other` itself.
  const void* translate(const void* other) const;

 private:
  struct OtherMapping {
    uintptr_t start;
    uintptr_t end;
    size_t offset;  // in the file
  };

  bool map(int file);
  void unmap();
  void touch(size_t start, size_t end) const;
  bool isLarge(size_t start, size_t end) const;
  void useLargePages(int file);
  void reread(int file);

  char* data_ = nullptr;  // null where nothing is mapped
  size_t bytes_ = 0;
  uint64_t inode_ = 0;
  std::vector<OtherMapping> others_;  // in the order of addresses
};

}  // namespace pocket
