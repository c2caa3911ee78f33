// A mapped file against the bytes that were written: what lies where, in this mapping and in others of the same file.
#include "runtime/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/check.h"

using pocket::MappedFile;

namespace {

// A file of words that say where they stand; gone at the end.
struct Written {
  explicit Written(size_t bytes) : words(bytes / sizeof(uint32_t)) {
    for (size_t i = 0; i < words.size(); i++) words[i] = static_cast<uint32_t>(i * 2654435761u);
    const char* folder = std::getenv("TMPDIR");
    path = std::string(folder == nullptr ? "/tmp" : folder) + "/pocket-mapped-XXXXXX";
    file = mkstemp(path.data());
    CHECK(file >= 0);
    CHECK_EQ(write(file, words.data(), this->bytes()), static_cast<ssize_t>(this->bytes()));
  }
  ~Written() {
    close(file);
    unlink(path.c_str());
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  size_t bytes() const { return words.size() * sizeof(uint32_t); }

  std::vector<uint32_t> words;
  std::string path;
  int file = -1;
};

// As a library would map a part of the file for itself.
struct ProfileEntry {
  ProfileEntry(const Written& written, size_t offset, size_t bytes) : bytes(bytes) {
    start = static_cast<char*>(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, written.file, static_cast<off_t>(offset)));
    CHECK(start != MAP_FAILED);
  }
  ~ProfileEntry() { munmap(start, bytes); }
  ProfileEntry(const ProfileEntry&) = delete;
  ProfileEntry& operator=(const ProfileEntry&) = delete;
  char* start;
  size_t bytes;
};

}  // namespace

TEST("a mapped file has the file's bytes where another mapping of a part of it has them") {
  // Less than a large page, and enough for the attempt to make them large.
  for (const size_t bytes : {size_t{100'000}, size_t{9'500'000}}) {
    const Written written(bytes);
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t offset = bytes / 3 / page * page;
    const ProfileEntry part(written, offset, bytes / 2), front(written, 0, page);
    MappedFile file(written.path);
    CHECK(file.translate(part.start) == part.start);  // not searched yet
    file.findOtherMappings();
#if defined(__linux__)
    const auto* here = static_cast<const char*>(file.translate(part.start));
    CHECK(here != part.start);
    CHECK(std::memcmp(here - offset, written.words.data(), written.bytes()) == 0);
    CHECK(file.translate(part.start + part.bytes - 1) == here + part.bytes - 1);
    CHECK(file.translate(front.start + 5) == here - offset + 5);
#endif
    int elsewhere = 0;
    CHECK(file.translate(&elsewhere) == &elsewhere);
  }
}

TEST("what cannot be mapped leaves every byte where it is") {
  const Written empty(0);
  for (const std::string& path : {std::string("/nowhere/weights.bin"), std::string("/"), empty.path}) {
    MappedFile file(path);
    file.findOtherMappings();
    int elsewhere = 0;
    CHECK(file.translate(&elsewhere) == &elsewhere);
  }
}
