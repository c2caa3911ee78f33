// The pool alone: three pages of four slots.
#include "cache/pool.h"

#include "support/check.h"

using pocket::Pool;

TEST("(3) a page is free exactly while no cell stands in it") {
  Pool pool(3, 4);
  CHECK_EQ(pool.pagesFree(), 3);
  const int32_t page = pool.allocate(2);
  CHECK_EQ(pool.pagesFree(), 2);
  pool.addCells(page, 3);  // a fork
  pool.removeCells(page, 2);
  CHECK_EQ(pool.cells(page), 3);
  CHECK_EQ(pool.pagesFree(), 2);
  CHECK(pool.allocation(page) != 0);
  pool.removeCells(page, 3);
  CHECK_EQ(pool.pagesFree(), 3);
  CHECK_EQ(pool.allocation(page), 0);
}

TEST("the lowest free page is allocated first, however it became free") {
  Pool pool(3, 4);
  CHECK_EQ(pool.allocate(1), 0);
  CHECK_EQ(pool.allocate(1), 1);
  CHECK_EQ(pool.allocate(1), 2);
  pool.removeCells(2, 1);
  pool.removeCells(0, 1);
  CHECK_EQ(pool.allocate(1), 0);
  CHECK_EQ(pool.allocate(1), 2);
}

TEST("allocation from an empty pool is CACHE_FULL and changes nothing") {
  Pool pool(1, 4);
  pool.allocate(1);
  CHECK_THROWS_CODE(pool.allocate(1), "CACHE_FULL");
  CHECK_EQ(pool.cells(0), 1);
  CHECK_EQ(pool.pagesFree(), 0);
}

TEST("(5) what was written in a page is forgotten when it is free, and each allocation has a new number") {
  Pool pool(2, 4);
  const int32_t page = pool.allocate(4);
  const int64_t allocation = pool.allocation(page);
  pool.write(1);
  CHECK(pool.written(1));
  CHECK(!pool.written(2));
  pool.removeCells(page, 4);
  CHECK(!pool.written(1));
  CHECK_EQ(pool.allocate(1), page);
  CHECK(pool.allocation(page) != allocation);
}

TEST("a pool without pages, or with more slots than an int32 counts, is refused") {
  CHECK_THROWS_CODE(Pool(0, 16), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Pool(4, 0), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Pool(-1, -16), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Pool(1 << 28, 16), "BAD_ARGUMENT");
}
