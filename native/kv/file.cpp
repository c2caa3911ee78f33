// Reading and writing of kv/file.h's format. All sizes follow from the header, whose own checksum is looked at
// first, so that nothing is allocated on the word of a damaged file.
#include "kv/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "error.h"
#include "kv/checksum.h"

namespace pocket {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "KV files are written as the memory of the machine");

constexpr char kMagic[8] = {'P', 'O', 'C', 'K', 'E', 'T', 'K', 'V'};
// To be raised with every change of the layout, of what is stored, or of how a key is rotated.
constexpr uint32_t kVersion = 1;
constexpr int32_t kChunk = 1024;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t kvType;
  int32_t layers, kvHeads, headDim, cells;
  int32_t exactLength;
  int32_t chunk;
  double ropeBase;
  char digest[kDigestMax + 8];
  uint8_t zeros[72];
  uint64_t sum;  // of everything in front of it
};
static_assert(sizeof(Header) == 256 && std::is_trivially_copyable_v<Header>);

Header headerOf(const KvFileIdentity& identity, const KvFileCells& cells) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.kvType = static_cast<uint32_t>(identity.shape.type);
  header.layers = identity.shape.layers;
  header.kvHeads = identity.shape.kvHeads;
  header.headDim = identity.shape.headDim;
  header.cells = static_cast<int32_t>(cells.tokens.size());
  header.exactLength = cells.exactLength;
  header.chunk = kChunk;
  header.ropeBase = identity.ropeBase;
  identity.digest.copy(header.digest, kDigestMax);
  header.sum = checksum(&header, offsetof(Header, sum), 0);
  return header;
}

// Section numbers seed the checksums: 0 the header, 1 the cells, 2 … the chunks.
uint64_t sectionOf(int layer, int32_t firstCell, int32_t cells) {
  const int64_t chunks = (static_cast<int64_t>(cells) + kChunk - 1) / kChunk;
  return static_cast<uint64_t>(2 + layer * chunks + firstCell / kChunk);
}

size_t cellsBytes(int32_t cells) { return static_cast<size_t>(cells) * 2 * sizeof(int32_t); }

size_t chunkBytes(const KvShape& shape, int32_t cells) {
  const size_t scale = shape.type == KvType::kInt8 ? sizeof(float) : 0;
  return 2 * static_cast<size_t>(cells) * shape.kvHeads * (shape.headDim * bytesPerElement(shape.type) + scale);
}

int64_t fileBytes(const KvShape& shape, int32_t cells) {
  int64_t layer = 0;
  for (int32_t first = 0; first < cells; first += kChunk) {
    layer += static_cast<int64_t>(chunkBytes(shape, std::min(kChunk, cells - first)) + sizeof(uint64_t));
  }
  return static_cast<int64_t>(sizeof(Header) + cellsBytes(cells) + sizeof(uint64_t)) + layer * shape.layers;
}

// A limit on file sizes raises a signal that ends the process unless the writing thread has it blocked.
class SizeSignalBlocked {
 public:
  SizeSignalBlocked() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeSignalBlocked() {
    sigset_t pending;
    int taken = 0;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1) sigwait(&signal_, &taken);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_, before_;
};

// A file under a temporary name, gone again unless it is published.
class StagedFile {
 public:
  explicit StagedFile(const std::string& path) : path_(path) {
    static std::atomic<int> number{0};
    temporary_ = path + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(number++);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0) fail();
  }
  ~StagedFile() {
    if (file_ >= 0) close(file_);
    if (!published_) unlink(temporary_.c_str());
  }
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void write(const void* data, size_t bytes) {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file_, from, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      from += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void writeSection(const void* data, size_t bytes, uint64_t section) {
    const uint64_t sum = checksum(data, bytes, section);
    write(data, bytes);
    write(&sum, sizeof sum);
  }

  void publish() {
    if (fsync(file_) != 0) fail();
    const int closed = close(file_);
    file_ = -1;
    if (closed != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    published_ = true;
  }

 private:
  [[noreturn]] void fail() const {
    const int cause = errno;
    const bool full = cause == ENOSPC || cause == EDQUOT || cause == EFBIG;
    throw Error(full ? "DISK_FULL" : "KV_FILE_UNWRITABLE",
                path_ + " could not be written: " + std::strerror(cause) + ".");
  }

  std::string path_, temporary_;
  int file_ = -1;
  bool published_ = false;
};

}  // namespace

void writeKvFile(const std::string& path, const KvFileIdentity& identity, const KvFileCells& cells,
                 const std::vector<int32_t>& slots, const KvStore& store) {
  const SizeSignalBlocked blocked;
  StagedFile staged(path);
  const int32_t count = static_cast<int32_t>(slots.size());
  const Header header = headerOf(identity, cells);
  staged.write(&header, sizeof header);
  std::vector<int32_t> numbers = cells.tokens;
  numbers.insert(numbers.end(), cells.births.begin(), cells.births.end());
  staged.writeSection(numbers.data(), cellsBytes(count), 1);
  std::vector<uint8_t> chunk(chunkBytes(identity.shape, std::min(kChunk, count)));
  for (int layer = 0; layer < identity.shape.layers; layer++) {
    for (int32_t first = 0; first < count; first += kChunk) {
      const int32_t chunkCells = std::min(kChunk, count - first);
      packSlots(store.shape(), store.layer(layer), slots.data() + first, chunkCells, chunk.data());
      staged.writeSection(chunk.data(), chunkBytes(identity.shape, chunkCells), sectionOf(layer, first, count));
    }
  }
  staged.publish();
}

KvFileReader::KvFileReader(const std::string& path, const KvFileIdentity& identity, int32_t context, int32_t vocab)
    : path_(path), shape_(identity.shape) {
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) refuse(std::strerror(errno));
  try {
    struct stat status{};
    Header header{};
    if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) refuse("it is not a regular file");
    if (status.st_size < static_cast<off_t>(sizeof header)) refuse("it is shorter than a header");
    readExactly(&header, sizeof header, 0);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) refuse("it is not a KV file");
    if (header.sum != checksum(&header, offsetof(Header, sum), 0)) refuse("its header is damaged");
    if (header.version != kVersion || header.chunk != kChunk) {
      refuse("it has layout version " + std::to_string(header.version) + ", this program reads " +
             std::to_string(kVersion));
    }
    KvFileCells none;
    Header mine = headerOf(identity, none);
    if (std::memcmp(header.digest, mine.digest, sizeof mine.digest) != 0) refuse("it is of another model");
    if (header.kvType != mine.kvType) refuse(std::string("its keys are not ") + name(identity.shape.type));
    if (header.layers != mine.layers || header.kvHeads != mine.kvHeads || header.headDim != mine.headDim)
      refuse("its shapes are another model's");
    if (header.ropeBase != mine.ropeBase) refuse("its keys were rotated with another base");
    if (header.cells < 0 || header.cells > context) {
      refuse("it has " + std::to_string(header.cells) + " cells, a sequence here at most " + std::to_string(context));
    }
    const int64_t bytes = fileBytes(shape_, header.cells);
    if (status.st_size != bytes) {
      refuse("it has " + std::to_string(status.st_size) + " bytes instead of " + std::to_string(bytes));
    }
    cells_.exactLength = header.exactLength;
    readCells(header.cells, context, vocab);
  } catch (...) {
    close(file_);
    throw;
  }
}

KvFileReader::~KvFileReader() { close(file_); }

void KvFileReader::readCells(int32_t count, int32_t context, int32_t vocab) {
  std::vector<int32_t> numbers(static_cast<size_t>(count) * 2);
  uint64_t sum = 0;
  readExactly(numbers.data(), cellsBytes(count), sizeof(Header));
  readExactly(&sum, sizeof sum, static_cast<int64_t>(sizeof(Header) + cellsBytes(count)));
  if (sum != checksum(numbers.data(), cellsBytes(count), 1)) refuse("its list of cells is damaged");
  cells_.tokens.assign(numbers.begin(), numbers.begin() + count);
  cells_.births.assign(numbers.begin() + count, numbers.end());
  // A sound checksum over nonsense: written by a program with a fault. Believing it would break the cache's rules.
  if (cells_.exactLength < 0 || cells_.exactLength > count) refuse("its exact length is not a length of it");
  for (int32_t i = 0; i < count; i++) {
    const bool fits = cells_.tokens[i] >= 0 && cells_.tokens[i] < vocab && cells_.births[i] >= 0 &&
                      cells_.births[i] < context && (i >= cells_.exactLength || cells_.births[i] == i);
    if (!fits) refuse("cell " + std::to_string(i) + " holds what no cell of this model can");
  }
}

void KvFileReader::read(const std::vector<int32_t>& slots, KvStore& store) const {
  const int32_t count = static_cast<int32_t>(slots.size());
  int64_t at = static_cast<int64_t>(sizeof(Header) + cellsBytes(count) + sizeof(uint64_t));
  std::vector<uint8_t> chunk(chunkBytes(shape_, std::min(kChunk, count)) + sizeof(uint64_t));
  for (int layer = 0; layer < shape_.layers; layer++) {
    for (int32_t first = 0; first < count; first += kChunk) {
      const int32_t cells = std::min(kChunk, count - first);
      const size_t bytes = chunkBytes(shape_, cells);
      readExactly(chunk.data(), bytes + sizeof(uint64_t), at);
      at += static_cast<int64_t>(bytes + sizeof(uint64_t));
      uint64_t sum = 0;
      std::memcpy(&sum, chunk.data() + bytes, sizeof sum);
      if (sum != checksum(chunk.data(), bytes, sectionOf(layer, first, count))) {
        refuse("the keys of layer " + std::to_string(layer) + " are damaged");
      }
      unpackSlots(store.shape(), store.layer(layer), slots.data() + first, cells, chunk.data());
    }
  }
}

void KvFileReader::readExactly(void* to, size_t bytes, int64_t from) const {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = pread(file_, at, bytes, from);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(std::strerror(errno));
    if (count == 0) refuse("it was cut short while it was read");
    at += count;
    from += count;
    bytes -= static_cast<size_t>(count);
  }
}

void KvFileReader::refuse(const std::string& why) const {
  throw Error("KV_FILE_REFUSED", "The file " + path_ + " is not used: " + why + ".");
}

}  // namespace pocket
