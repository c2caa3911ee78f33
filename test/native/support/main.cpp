// Runs every registered test whose sentence contains the first argument, all of them without one. Prints each
// failing check and a last line `N passed, N failed`; exits with 1 when a test failed or none was chosen.
#include <cstdio>
#include <exception>

#include "support/check.h"

namespace check {

namespace {
const Test* running = nullptr;
int failuresOfRunning = 0;
constexpr int kFailuresShown = 20;
}  // namespace

std::vector<Test>& tests() {
  static std::vector<Test> all;  // filled by static initialisers of the test files
  return all;
}

void fail(const char* file, int line, const std::string& what) {
  if (failuresOfRunning++ >= kFailuresShown) return;
  std::printf("FAILED %s\n  %s:%d: %s\n", running->sentence.c_str(), file, line, what.c_str());
}

void checkThrows(const std::function<void()>& body, const std::string& code, const char* text, const char* file,
                 int line) {
  try {
    body();
  } catch (const pocket::Error& error) {
    if (code != error.code())
      fail(file, line, std::string(text) + " threw " + error.code() + " and not " + code + ": " + error.what());
    return;
  }
  fail(file, line, std::string(text) + " did not throw " + code);
}

}  // namespace check

static bool passes(const check::Test& test) {
  check::running = &test;
  check::failuresOfRunning = 0;
  try {
    test.body();
  } catch (const std::exception& error) {
    check::fail("test", 0, std::string("threw ") + error.what());
  }
  if (check::failuresOfRunning > check::kFailuresShown)
    std::printf("  … and %d more failing checks\n", check::failuresOfRunning - check::kFailuresShown);
  return check::failuresOfRunning == 0;
}

int main(int count, char** arguments) {
  const std::string filter = count > 1 ? arguments[1] : "";
  int passed = 0, failed = 0;
  for (const check::Test& test : check::tests()) {
    if (test.sentence.find(filter) == std::string::npos) continue;
    (passes(test) ? passed : failed)++;
  }
  if (passed + failed == 0) std::printf("no test has \"%s\" in its sentence\n", filter.c_str());
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0 || passed == 0 ? 1 : 0;
}
