// The one exception type of the native side. Every failure that can be a caller's fault or the machine's
// carries a code of the table in src/errors.ts; addon/addon.cpp turns it into a JavaScript error with that code.
// Nothing else is thrown on purpose, and nothing below addon/addon.cpp may end the process.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace pocket {

class Error : public std::runtime_error {
 public:
  // `code` is a string literal out of the table; the message says what, with which numbers, what to do.
  Error(const char* code, const std::string& message) : std::runtime_error(message), code_(code) {}
  const char* code() const noexcept { return code_; }

 private:
  const char* code_;
};

// printf-style message with the numbers of the failure.
[[gnu::format(printf, 2, 3)]] inline Error error(const char* code, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return Error(code, text);
}

}  // namespace pocket
