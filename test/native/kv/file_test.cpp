// KV files without a model: a cache and a store of random elements, written, read into other slots, and refused
// in every way a file can be wrong.
#include "kv/file.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "support/check.h"

using namespace pocket;

namespace {

constexpr int32_t kContext = 4000, kVocab = 900;

KvFileIdentity identityOf(KvType type, int64_t slots) {
  KvFileIdentity identity;
  identity.digest = "digest of a model";
  identity.ropeBase = 10000;
  identity.shape.layers = 2;
  identity.shape.kvHeads = 2;
  identity.shape.headDim = 16;
  identity.shape.slots = slots;
  identity.shape.type = type;
  return identity;
}

// A folder of its own, gone with everything in it at the end.
struct Folder {
  std::string path;
  Folder() {
    const char* base = std::getenv("TMPDIR");
    std::string name = std::string(base != nullptr ? base : "/tmp") + "/pocket-kv-XXXXXX";
    path = mkdtemp(name.data());
  }
  ~Folder() {
    for (const std::string& name : names()) unlink((path + "/" + name).c_str());
    rmdir(path.c_str());
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    DIR* directory = opendir(path.c_str());
    while (const dirent* entry = readdir(directory)) {
      if (entry->d_name[0] != '.') found.push_back(entry->d_name);
    }
    closedir(directory);
    return found;
  }
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Slots all over the store, each filled with random values; tokens and births to match.
struct Scene {
  KvFileIdentity identity;
  KvStore store;
  KvFileCells cells;
  std::vector<int32_t> slots;

  Scene(KvType type, int32_t count, uint32_t seed) : identity(identityOf(type, 2048)), store(identity.shape) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int32_t slot = 0; slot < 2048; slot++) slots.push_back(slot);
    std::shuffle(slots.begin(), slots.end(), random);
    slots.resize(static_cast<size_t>(count));
    std::vector<float> key(16), value(16);
    for (int32_t i = 0; i < count; i++) {
      cells.tokens.push_back(static_cast<int32_t>(random() % kVocab));
      cells.births.push_back(i < count / 2 ? i : i + 5);
      for (int layer = 0; layer < 2; layer++) {
        for (int head = 0; head < 2; head++) {
          for (float& x : key) x = normal(random);
          for (float& x : value) x = normal(random);
          writeSlot(identity.shape, store.layer(layer), head, slots[static_cast<size_t>(i)], key.data(), value.data());
        }
      }
    }
    cells.exactLength = count / 2;
  }
  void write(const std::string& path) const { writeKvFile(path, identity, cells, slots, store); }
};

void loadInto(const std::string& path, const KvFileIdentity& identity) {
  const KvFileReader reader(path, identity, kContext, kVocab);
  KvStore store(identity.shape);
  std::vector<int32_t> slots;
  for (size_t i = 0; i < reader.cells().tokens.size(); i++) slots.push_back(static_cast<int32_t>(i));
  reader.read(slots, store);
}

}  // namespace

TEST("a KV file holds every cell of every type bit for bit, whatever slots it is read from and written to") {
  const Folder folder;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8}) {
    for (const int32_t count : {1, 17, 1024, 1500}) {
      const Scene scene(type, count, static_cast<uint32_t>(count));
      const std::string path = folder.path + "/cells";
      scene.write(path);
      const KvFileReader reader(path, scene.identity, kContext, kVocab);
      CHECK_EQ(reader.cells().tokens, scene.cells.tokens);
      CHECK_EQ(reader.cells().births, scene.cells.births);
      CHECK_EQ(reader.cells().exactLength, count / 2);
      KvStore other(scene.identity.shape);
      std::vector<int32_t> slots;
      for (int32_t i = 0; i < count; i++) slots.push_back(2047 - i);
      reader.read(slots, other);
      for (int layer = 0; layer < 2; layer++) {
        for (const bool keys : {true, false}) {
          CHECK(other.read(layer, slots, keys) == scene.store.read(layer, scene.slots, keys));
        }
      }
    }
  }
  CHECK_EQ(folder.names().size(), 1);
}

TEST("an empty sequence makes a file that is read back empty") {
  const Folder folder;
  const Scene scene(KvType::kF16, 0, 1);
  scene.write(folder.path + "/empty");
  CHECK_EQ(KvFileReader(folder.path + "/empty", scene.identity, kContext, kVocab).cells().tokens.size(), 0);
  loadInto(folder.path + "/empty", scene.identity);
}

TEST("a file of another model, type, shape, rope or context is refused") {
  const Folder folder;
  const std::string path = folder.path + "/cells";
  const Scene scene(KvType::kF16, 40, 2);
  scene.write(path);
  KvFileIdentity other = scene.identity;
  const auto refused = [&] {
    CHECK_THROWS_CODE(loadInto(path, other), "KV_FILE_REFUSED");
    other = scene.identity;
  };
  other.digest = "digest of a model!", refused();
  other.digest = "digest of a mode", refused();
  other.ropeBase = 10001, refused();
  other.shape.type = KvType::kBf16, refused();
  other.shape.layers = 1, refused();
  other.shape.kvHeads = 1, refused();
  other.shape.headDim = 32, refused();
  loadInto(path, scene.identity);
  CHECK_THROWS_CODE(KvFileReader(path, scene.identity, 39, kVocab), "KV_FILE_REFUSED");
  CHECK_THROWS_CODE(KvFileReader(path, scene.identity, kContext, 3), "KV_FILE_REFUSED");
  CHECK_THROWS_CODE(loadInto(folder.path + "/missing", scene.identity), "KV_FILE_REFUSED");
  CHECK_THROWS_CODE(loadInto(folder.path, scene.identity), "KV_FILE_REFUSED");
}

TEST("every flipped bit and every cut of a file is refused") {
  const Folder folder;
  const std::string path = folder.path + "/cells", broken = folder.path + "/broken";
  const Scene scene(KvType::kInt8, 20, 3);
  scene.write(path);
  const std::string whole = contents(path);
  for (size_t at = 0; at < whole.size(); at++) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    put(broken, damaged);
    CHECK_THROWS_CODE(loadInto(broken, scene.identity), "KV_FILE_REFUSED");
  }
  for (size_t length = 0; length < whole.size(); length += 97) {
    put(broken, whole.substr(0, length));
    CHECK_THROWS_CODE(loadInto(broken, scene.identity), "KV_FILE_REFUSED");
  }
  put(broken, whole + "x");
  CHECK_THROWS_CODE(loadInto(broken, scene.identity), "KV_FILE_REFUSED");
  put(broken, whole);
  loadInto(broken, scene.identity);
}

TEST("two chunks of a file cannot change places") {
  const Folder folder;
  const std::string path = folder.path + "/cells";
  const Scene scene(KvType::kF32, 16, 4);
  scene.write(path);
  std::string whole = contents(path);
  const size_t chunk = 2 * 2 * 16 * 16 * sizeof(float) + 8, first = whole.size() - 2 * chunk;
  put(path, whole.substr(0, first) + whole.substr(first + chunk) + whole.substr(first, chunk));
  CHECK_THROWS_CODE(loadInto(path, scene.identity), "KV_FILE_REFUSED");
}

TEST("a file whose sums are right but whose cells cannot be is refused") {
  const Folder folder;
  const std::string path = folder.path + "/cells";
  for (const int fault : {0, 1, 2, 3, 4}) {
    Scene scene(KvType::kF16, 20, 5);
    if (fault == 0) scene.cells.tokens[3] = kVocab;
    if (fault == 1) scene.cells.tokens[3] = -1;
    if (fault == 2) scene.cells.births[12] = kContext;
    if (fault == 3) scene.cells.exactLength = 21;
    if (fault == 4) scene.cells.exactLength = 12;  // cell 11 was born elsewhere
    scene.write(path);
    CHECK_THROWS_CODE(loadInto(path, scene.identity), "KV_FILE_REFUSED");
  }
}

TEST("a file that outgrows the disk is DISK_FULL; the one before it stays and nothing else does") {
  const Folder folder;
  const std::string path = folder.path + "/cells";
  const Scene small(KvType::kF16, 4, 6), large(KvType::kF32, 1500, 6);
  small.write(path);
  const std::string before = contents(path);
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit tight = limit;
  tight.rlim_cur = 64 * 1024;
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  CHECK_THROWS_CODE(large.write(path), "DISK_FULL");
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  CHECK_EQ(folder.names().size(), 1);
  CHECK(contents(path) == before);
}

TEST("a file that cannot be made is KV_FILE_UNWRITABLE") {
  const Folder folder;
  const Scene scene(KvType::kF16, 4, 7);
  CHECK_THROWS_CODE(scene.write(folder.path + "/no/such/folder"), "KV_FILE_UNWRITABLE");
  CHECK_THROWS_CODE(scene.write("/proc/pocket"), "KV_FILE_UNWRITABLE");
  mkdir((folder.path + "/taken").c_str(), 0700);
  CHECK_THROWS_CODE(scene.write(folder.path + "/taken"), "KV_FILE_UNWRITABLE");
  CHECK_EQ(folder.names().size(), 1);
  rmdir((folder.path + "/taken").c_str());
}
