// Sampling that takes the likeliest token, so that a benchmark says the same thing at every run.
export const greedy = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  seed: 0,
};
