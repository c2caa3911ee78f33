// Keys and values of one sequence's cells in a file, with tokens and births: what a session that had to go is
// read back from. A file is a cache: one that is not exactly what this runner would have written is refused,
// never repaired. Knows bytes and layout; who holds a slot is the cache's business. Little-endian.
//
//   header    magic, version, shapes, kv type, rope base, digest, counts, checksum           256 bytes
//   cells     tokens[cells], births[cells] (i32), checksum
//   chunks    for each layer, for each 1,024 cells:
//               keys   [kvHead][cell][headDim]     elements as stored, their tile order undone
//               values [kvHead][cell][headDim]
//               scales [side][kvHead][cell]        f32, int8 only
//               checksum
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/store.h"

namespace pocket {

// What a file must agree with to be of use. Slots of the shape do not count.
struct KvFileIdentity {
  std::string digest;  // names weights and graph; 1 to kDigestMax bytes
  double ropeBase = 0;
  KvShape shape;
};

inline constexpr size_t kDigestMax = 120;

// Filled cells, front to back.
struct KvFileCells {
  std::vector<int32_t> tokens;
  std::vector<int32_t> births;
  int32_t exactLength = 0;
};

// Writes `path` by way of `path.tmp-<process>-<number>`, synced and renamed, so that a file of that name is whole
// or not there. `slots` are where the cells' keys lie; they must not be written meanwhile. Throws DISK_FULL,
// KV_FILE_UNWRITABLE with the temporary file gone and `path` as it was. On any thread.
void writeKvFile(const std::string& path, const KvFileIdentity& identity, const KvFileCells& cells,
                 const std::vector<int32_t>& slots, const KvStore& store);

// An open file whose header and cells have been checked. On any thread, one at a time.
class KvFileReader {
 public:
  // Throws KV_FILE_REFUSED: no such file, cut short or too long, damaged, other version, model, type, shape or
  // rope, or cells that this runner's context and vocabulary cannot hold.
  KvFileReader(const std::string& path, const KvFileIdentity& identity, int32_t context, int32_t vocab);
  ~KvFileReader();
  KvFileReader(const KvFileReader&) = delete;
  KvFileReader& operator=(const KvFileReader&) = delete;

  const KvFileCells& cells() const { return cells_; }
  // Copies the keys and values to `slots`, one per cell. Throws KV_FILE_REFUSED when a chunk is damaged; the
  // slots then hold anything.
  void read(const std::vector<int32_t>& slots, KvStore& store) const;

 private:
  void readCells(int32_t count, int32_t context, int32_t vocab);
  void readExactly(void* to, size_t bytes, int64_t from) const;
  [[noreturn]] void refuse(const std::string& why) const;

  std::string path_;
  KvShape shape_;
  int file_ = -1;
  KvFileCells cells_;
};

}  // namespace pocket
