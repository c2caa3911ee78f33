// What the numbers of the attention kernel cost a real model: the same tokens through the same graph with other pages
// and other kernels, each against f32 pages and f32 products. Prints the mean and the largest KL divergence of the
// next-token distributions and how often the likeliest token is the same, at every `every`-th position.
//
//   attention_fidelity libonnxruntime.so.1 graph.int8.onnx tokens.txt count every [shape] arm…
//
// To be run in the model's folder; built with the benches, in build/bench. An arm is pages/isa, as f16/avx512bf16, or
// pages/tiles: the kernel for AMX over emulated tiles, slowly; with /graph.onnx behind it, another graph over the same
// weights. tokens.txt holds numbers. The shape is layers,heads,kvHeads,headDim,vocab,ropeBase; without it, that of
// qwen2.5-coder-0.5b.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "error.h"
#include "runtime/model.h"
#include "support/check.h"

using namespace pocket;

namespace pocket {
void attendEmulatedTiles(const AttendJob& job);  // test/native
}  // namespace pocket

// Where a processor would fault, emulated tiles say so here.
void check::fail(const char*, int, const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

namespace {

constexpr int kChunk = 512;

struct Logits {
  std::vector<float> rows;  // (positions, vocab), less their logarithm of the sum: log probabilities
  double seconds = 0;
};

KvType typeOf(const std::string& text) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8})
    if (text == name(type)) return type;
  throw std::runtime_error("no such pages: " + text);
}

Isa isaOf(const std::string& text) {
  for (Isa isa : supportedIsas())
    if (text == name(isa)) return isa;
  throw std::runtime_error("not on this machine: " + text);
}

void toLogProbabilities(float* row, int vocab) {
  const float largest = *std::max_element(row, row + vocab);
  double sum = 0;
  for (int i = 0; i < vocab; i++) sum += std::exp(double{row[i]} - largest);
  const float shift = static_cast<float>(largest + std::log(sum));
  for (int i = 0; i < vocab; i++) row[i] -= shift;
}

Logits compute(ModelOptions options, const std::string& arm, const std::vector<int64_t>& tokens, int every) {
  const size_t slash = arm.find('/'), second = arm.find('/', slash + 1);
  const std::string kernel = arm.substr(slash + 1, second == std::string::npos ? second : second - slash - 1);
  if (second != std::string::npos) options.graph = arm.substr(second + 1);
  const bool tiles = kernel == "tiles";
  options.isa = isaOf(tiles ? "avx512bf16" : kernel);
  if (tiles) options.attend = attendEmulatedTiles;
  const int count = static_cast<int>(tokens.size());
  const size_t vocab = static_cast<size_t>(options.vocab);
  KvStore store(
      {options.layers, options.kvHeads, options.headDim, (count + 15) / 16 * 16, typeOf(arm.substr(0, slash))});
  Model model(options, store);
  Logits logits;
  for (int start = 0; start < count; start += kChunk) {
    const int end = std::min(start + kChunk, count);
    Batch batch;
    std::vector<int64_t> wanted;
    for (int i = start; i < end; i++) {
      batch.rows.push_back({i, i});
      if (i % every == every - 1) wanted.push_back(i - start);
    }
    batch.stretches.push_back({0, end, 0, 0});
    batch.entries.push_back({0, end - start, 0, 1});
    const auto before = std::chrono::steady_clock::now();
    const float* rows = model.run(batch, {tokens.begin() + start, tokens.begin() + end}, wanted);
    logits.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    logits.rows.insert(logits.rows.end(), rows, rows + wanted.size() * vocab);
  }
  for (size_t at = 0; at < logits.rows.size(); at += vocab) toLogProbabilities(&logits.rows[at], options.vocab);
  return logits;
}

void report(const std::string& arm, int vocab, const Logits& reference, const Logits& got) {
  double sum = 0, largest = 0;
  int same = 0;
  const int positions = static_cast<int>(reference.rows.size()) / vocab;
  for (int p = 0; p < positions; p++) {
    const float* a = &reference.rows[static_cast<size_t>(p) * vocab];
    const float* b = &got.rows[static_cast<size_t>(p) * vocab];
    double divergence = 0;
    for (int i = 0; i < vocab; i++) divergence += std::exp(double{a[i]}) * (double{a[i]} - double{b[i]});
    sum += divergence;
    largest = std::max(largest, divergence);
    same += std::max_element(a, a + vocab) - a == std::max_element(b, b + vocab) - b;
  }
  std::printf("| %-16s | %9.2e | %9.2e | %.4f | %5.1f |\n", arm.c_str(), sum / positions, largest,
              double(same) / positions, got.seconds);
  std::fflush(stdout);
}

// Reads a shape if the argument is one.
bool takeShape(const char* text, ModelOptions& options) {
  return std::sscanf(text, "%d,%d,%d,%d,%d,%lf", &options.layers, &options.heads, &options.kvHeads, &options.headDim,
                     &options.vocab, &options.ropeBase) == 6;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 7) {
    std::fprintf(
        stderr, "attention_fidelity <libonnxruntime> <graph.onnx> <tokens.txt> <count> <every> [shape] <pages/isa>…\n");
    return 2;
  }
  try {
    ModelOptions options;
    options.runtime = arguments[1];
    options.graph = arguments[2];
    options.layers = 24, options.heads = 14, options.kvHeads = 2, options.headDim = 64;
    options.vocab = 151936, options.context = 8192, options.ropeBase = 1e6, options.threads = 2;
    const int firstArm = takeShape(arguments[6], options) ? 7 : 6;
    std::ifstream file(arguments[3]);
    std::vector<int64_t> tokens(static_cast<size_t>(std::atoi(arguments[4])));
    for (int64_t& token : tokens)
      if (!(file >> token)) throw std::runtime_error("too few tokens in the file");
    const int every = std::atoi(arguments[5]);
    const Logits reference = compute(options, "f32/avx512", tokens, every);
    std::printf("| %-16s | mean KL | max KL | top-1 | s |\n|---|--:|--:|--:|--:|\n", "pages/isa");
    report("f32/avx512", options.vocab, reference, reference);
    for (int i = firstArm; i < count; i++)
      report(arguments[i], options.vocab, reference, compute(options, arguments[i], tokens, every));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}
