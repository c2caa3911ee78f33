// The state of emulated tiles and what each instruction does to it; see emulated_tiles.h.
#include "support/emulated_tiles.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "support/check.h"

namespace emulated {
namespace {

constexpr int kTiles = 8, kMaxRows = 16, kMaxBytes = 64;

struct Tile {
  int rows = 0;
  int bytes = 0;  // of a row
  uint8_t data[kMaxRows][kMaxBytes] = {};
};

thread_local Tile tiles[kTiles];
thread_local bool entered = false;

void require(bool condition, const char* what) {
  if (!condition) check::fail("emulated_tiles", 0, what);
}

Tile& tileAt(int t) {
  require(entered, "a tile is used outside of enter and leave");
  require(t >= 0 && t < kTiles && tiles[t].rows > 0, "a tile is used that is not configured");
  return tiles[t];
}

// A load or a sum leaves zeros behind the rows and bytes that it writes.
void clear(Tile& tile) { std::memset(tile.data, 0, sizeof tile.data); }

// Numbers too small for a normal one count as zero, going in and coming out.
float flushed(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

// a * b + c of bf16s and a float, rounded once: the product is exact in double, and their sum has bits enough that
// rounding it twice is rounding it once (Figueroa 1995).
float fused(float a, float b, float c) { return flushed(static_cast<float>(static_cast<double>(a) * b + c)); }

float bf16At(const uint8_t* bytes) {
  const uint32_t bits = static_cast<uint32_t>(bytes[0]) << 16 | static_cast<uint32_t>(bytes[1]) << 24;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return flushed(x);
}

// The three tiles of a product of `width` numbers to a word.
struct Product {
  Product(int sums, int a, int b) : c(tileAt(sums)), x(tileAt(a)), y(tileAt(b)) {
    require(sums != a && sums != b && a != b, "a product needs three tiles");
    require(c.rows == x.rows && c.bytes == y.bytes && x.bytes == 4 * y.rows, "the shapes of a product do not fit");
    require(c.bytes % 4 == 0 && x.bytes % 4 == 0, "a row is no whole number of words");
  }
  Tile& c;
  const Tile &x, &y;
};

}  // namespace

bool isEntered() { return entered; }

void enter(const uint8_t* configuration) {
  require(!entered, "tiles are entered twice");
  require(configuration[0] == 1 && configuration[1] == 0, "palette 1 from row 0 is what there is");
  for (int i = 2; i < 16; i++) require(configuration[i] == 0, "a reserved byte is not zero");
  for (int t = 0; t < 16; t++) {
    const int bytes = configuration[16 + 2 * t] | configuration[17 + 2 * t] << 8, rows = configuration[48 + t];
    require(t < kTiles || (bytes == 0 && rows == 0), "a tile past the eighth is configured");
    require(bytes <= kMaxBytes && rows <= kMaxRows && (bytes == 0) == (rows == 0), "a tile has no such shape");
    if (t < kTiles) tiles[t] = {rows, bytes, {}};
  }
  entered = true;
}

void leave() {
  require(entered, "tiles are left that were not entered");
  for (Tile& tile : tiles) tile = {};
  entered = false;
}

void zero(int t) { clear(tileAt(t)); }

void load(int t, const void* from, int64_t stride) {
  Tile& tile = tileAt(t);
  clear(tile);
  for (int r = 0; r < tile.rows; r++)
    std::memcpy(tile.data[r], static_cast<const uint8_t*>(from) + r * stride, tile.bytes);
}

void store(int t, void* to, int64_t stride) {
  const Tile& tile = tileAt(t);
  for (int r = 0; r < tile.rows; r++) std::memcpy(static_cast<uint8_t*>(to) + r * stride, tile.data[r], tile.bytes);
}

// sums[m][n] += a[m][4 k + i] * b[k][4 n + i] over k and i, signed bytes, sums that wrap.
void dot(int sums, int a, int b) {
  const Product of(sums, a, b);
  for (int m = 0; m < of.c.rows; m++)
    for (int n = 0; n < of.c.bytes / 4; n++) {
      uint32_t sum;
      std::memcpy(&sum, &of.c.data[m][4 * n], sizeof sum);
      for (int k = 0; k < of.y.rows; k++)
        for (int i = 0; i < 4; i++)
          sum += static_cast<uint32_t>(static_cast<int8_t>(of.x.data[m][4 * k + i]) *
                                       static_cast<int8_t>(of.y.data[k][4 * n + i]));
      std::memcpy(&of.c.data[m][4 * n], &sum, sizeof sum);
    }
}

// sums[m][n] += (sum over k of a[m][2 k] * b[k][2 n]) + (sum over k of a[m][2 k + 1] * b[k][2 n + 1]), each sum by fused
// multiply-adds in the order of k, from zero.
void dotBf16(int sums, int a, int b) {
  const Product of(sums, a, b);
  float factors[kMaxRows][kMaxBytes / 2];
  for (int k = 0; k < of.y.rows; k++)
    for (int i = 0; i < of.c.bytes / 2; i++) factors[k][i] = bf16At(&of.y.data[k][2 * i]);
  for (int m = 0; m < of.c.rows; m++) {
    float temporary[kMaxBytes / 2] = {};
    for (int k = 0; k < of.y.rows; k++) {
      const float pair[2] = {bf16At(&of.x.data[m][4 * k]), bf16At(&of.x.data[m][4 * k + 2])};
      for (int i = 0; i < of.c.bytes / 2; i++) temporary[i] = fused(pair[i % 2], factors[k][i], temporary[i]);
    }
    for (int n = 0; n < of.c.bytes / 4; n++) {
      float sum;
      std::memcpy(&sum, &of.c.data[m][4 * n], sizeof sum);
      sum = flushed(flushed(sum) + flushed(temporary[2 * n] + temporary[2 * n + 1]));
      std::memcpy(&of.c.data[m][4 * n], &sum, sizeof sum);
    }
  }
}

}  // namespace emulated
