// Times the sampler alone on rows of 151,936 logits that look like a language model's: a broad bell with a few tokens
// well above it. Rows are taken in turn, so that none lies in the first cache; the kinds of vector code alternate.
// Best and median of the repetitions, in microseconds. Words choose rows (all must occur), --json prints lines of JSON.
//
//   sampler_bench avx512      sampler_bench --json top-p
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench.h"
#include "sampler/sampler.h"

using namespace pocket;

namespace {

constexpr int32_t kVocab = 151'936;
constexpr int kRows = 8;
constexpr int kRepetitions = 200;

struct Case {
  const char* name;
  Sampling sampling;
  bool logprob;
  bool mask;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, float temperature, int32_t topK, float topP, bool logprob = false,
                       bool mask = false, float penalty = 1) {
    Sampling sampling;
    sampling.temperature = temperature;
    sampling.topK = topK;
    sampling.topP = topP;
    sampling.repetitionPenalty = penalty;
    all.push_back({name, sampling, logprob, mask});
  };
  add("greedy", 0, 0, 1);
  add("greedy, logprob", 0, 0, 1, true);
  add("temperature 0.7", 0.7f, 0, 1);
  add("temperature 0.7, top-k 40, top-p 0.95", 0.7f, 40, 0.95f);
  add("temperature 0.7, top-p 0.95", 0.7f, 0, 0.95f);
  add("temperature 1.5, top-p 0.99", 1.5f, 0, 0.99f);
  add("top-k 20, top-p 0.8, repetition 1.05 over 4,096 tokens", 0.7f, 20, 0.8f, false, false, 1.05f);
  add("greedy, mask of one word in eight", 0, 0, 1, false, true);
  return all;
}

std::vector<float> row(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> bell(0, 2.2f);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = bell(random);
  for (int i = 0; i < 30; i++) logits[random() % kVocab] = 10 + bell(random);
  return logits;
}

// Times of one case, a list per kind of vector code.
std::vector<std::vector<double>> timesOf(const Case& one, const std::vector<std::vector<float>>& rows) {
  std::vector<int32_t> said(4096), mask((kVocab + 31) / 32);
  for (size_t i = 0; i < said.size(); i++) said[i] = static_cast<int32_t>(i * 7919 % 20'000);
  for (size_t i = 0; i < mask.size(); i++) mask[i] = i % 8 == 0 ? 0x5a5a5a5a : 0;
  std::vector<float> scratch(kVocab);
  std::vector<Sampler> samplers;
  for (const RowLoops* loops : supportedRowLoops()) samplers.emplace_back(kVocab, *loops);
  std::vector<std::vector<double>> times(samplers.size());
  for (int i = 0; i < kRepetitions; i++) {
    for (size_t kind = 0; kind < samplers.size(); kind++) {
      std::memcpy(scratch.data(), rows[static_cast<size_t>(i % kRows)].data(), sizeof(float) * kVocab);
      Sampling sampling = one.sampling;
      sampling.draw = static_cast<uint64_t>(i);
      const Mask allowed{one.mask ? mask.data() : nullptr, one.mask ? static_cast<int32_t>(mask.size()) : 0};
      const History history{said.data(), static_cast<int32_t>(said.size()), 0};
      const auto begin = std::chrono::steady_clock::now();
      samplers[kind].sample(scratch.data(), sampling, history, allowed, one.logprob);
      const auto took = std::chrono::steady_clock::now() - begin;
      times[kind].push_back(std::chrono::duration<double, std::micro>(took).count());
    }
  }
  for (std::vector<double>& own : times) std::sort(own.begin(), own.end());
  return times;
}

}  // namespace

int main(int count, char** arguments) {
  const auto [json, words] = Words(count, arguments);
  std::vector<std::vector<float>> rows;
  for (uint32_t seed = 0; seed < kRows; seed++) rows.push_back(row(seed));
  if (!json) std::printf("| row | best us | median us |\n| --- | --: | --: |\n");
  int shown = 0;
  for (const Case& one : cases()) {
    std::vector<std::string> names;
    for (const RowLoops* loops : supportedRowLoops()) names.push_back(std::string(one.name) + ", " + loops->name);
    const auto chosen = [&](const std::string& name) {
      return std::all_of(words.begin(), words.end(),
                         [&](const std::string& word) { return name.find(word) != std::string::npos; });
    };
    if (std::none_of(names.begin(), names.end(), chosen)) continue;
    const std::vector<std::vector<double>> times = timesOf(one, rows);
    for (size_t kind = 0; kind < names.size(); kind++) {
      if (!chosen(names[kind])) continue;
      shown++;
      std::printf(json ? "{\"row\":\"sampler %s\",\"usBest\":%.1f,\"us\":%.1f}\n" : "| %s | %.0f | %.0f |\n",
                  names[kind].c_str(), times[kind].front(), times[kind][times[kind].size() / 2]);
    }
  }
  if (shown == 0) std::fprintf(stderr, "no row has all of these words; run without words to see the rows\n");
  return shown == 0 ? 1 : 0;
}
