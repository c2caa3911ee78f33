// The runner's KV files: which cells are pinned, reserved and committed around reading and writing. The bytes are
// kv/file.cpp's.
#include "error.h"
#include "runtime/runner.h"

namespace pocket {

KvFileIdentity Runner::fileIdentity() const {
  if (options_.digest.empty()) {
    throw Error("BAD_ARGUMENT", "This runner was opened without a digest; KV files need one.");
  }
  return {options_.digest, options_.model.ropeBase, store_.shape()};
}

std::unique_ptr<Runner::Save> Runner::beginSave(int32_t id, const std::string& path) {
  fileIdentity();
  auto save = std::make_unique<Save>();
  save->path = path;
  save->capture = cache_.capture(id);
  files_++;
  try {
    Cells cells = cache_.cells(save->capture);
    save->cells = {std::move(cells.tokens), std::move(cells.births), cache_.info(save->capture).exactLength};
    save->slots = std::move(cells.slots);
  } catch (...) {
    endSave(*save);
    throw;
  }
  return save;
}

void Runner::write(const Save& save) const { writeKvFile(save.path, fileIdentity(), save.cells, save.slots, store_); }

void Runner::endSave(const Save& save) noexcept {
  cache_.release(save.capture);
  files_--;
}

std::unique_ptr<Runner::Load> Runner::beginLoad(const std::string& path) {
  fileIdentity();
  auto load = std::make_unique<Load>();
  load->path = path;
  files_++;
  return load;
}

void Runner::read(Load& load) const {
  load.reader = std::make_unique<KvFileReader>(load.path, fileIdentity(), options_.model.context, options_.model.vocab);
}

void Runner::reserve(Load& load) {
  load.sequence = cache_.open(static_cast<int32_t>(load.reader->cells().tokens.size()));
  load.slots = cache_.cells(load.sequence).slots;
}

void Runner::fill(const Load& load) { load.reader->read(load.slots, store_); }

int32_t Runner::endLoad(const Load& load) noexcept {
  const KvFileCells& cells = load.reader->cells();
  cache_.restore(load.sequence, cells.tokens, cells.births, cells.exactLength);
  files_--;
  return load.sequence;
}

void Runner::abandonLoad(const Load& load) noexcept {
  cache_.release(load.sequence);  // 0, never an id, where nothing was reserved
  files_--;
}

}  // namespace pocket
