// The harness of the C++ tests: TEST("sentence") { … } with CHECK, CHECK_EQ, CHECK_NEAR and CHECK_THROWS_CODE
// inside. A failing check is printed with file, line and values, and the test continues. It is not a framework:
// no fixtures, no parameters, no death tests. main.cpp runs what registered itself here.
#pragma once

#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "error.h"

namespace check {

struct Test {
  std::string sentence;
  void (*body)();
};

std::vector<Test>& tests();
void fail(const char* file, int line, const std::string& what);

struct Registration {
  Registration(const char* sentence, void (*body)()) { tests().push_back({sentence, body}); }
};

template <class T>
std::string show(const T& value) {
  std::ostringstream text;
  text.precision(9);
  if constexpr (std::is_same_v<T, uint8_t> || std::is_same_v<T, int8_t>) text << static_cast<int>(value);
  else text << value;
  return text.str();
}

template <class T>
std::string show(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); i++) text += (i > 0 ? ", " : "") + show(values[i]);
  return text + "]";
}

// Integers of different signedness compare by value; none of the tests needs 64 unsigned bits.
template <class A, class B>
bool equal(const A& a, const B& b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && !std::is_same_v<A, B>)
    return static_cast<long long>(a) == static_cast<long long>(b);
  else return a == b;
}

template <class A, class B>
void checkEqual(const A& a, const B& b, const char* texts, const char* file, int line) {
  if (!equal(a, b)) fail(file, line, std::string(texts) + ": " + show(a) + " is not " + show(b));
}

// NaN is near nothing.
inline void checkNear(double a, double b, double tolerance, const char* texts, const char* file, int line) {
  if (!(std::fabs(a - b) <= tolerance))
    fail(file, line, std::string(texts) + ": " + show(a) + " is not within " + show(tolerance) + " of " + show(b));
}

void checkThrows(const std::function<void()>& body, const std::string& code, const char* text, const char* file,
                 int line);

}  // namespace check

#define CHECK_JOIN_(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN_(a, b)
#define TEST(sentence) CHECK_TEST(sentence, __COUNTER__)
#define CHECK_TEST(sentence, number)                                                                       \
  static void CHECK_JOIN(test, number)();                                                                  \
  static const ::check::Registration CHECK_JOIN(registration, number)(sentence, CHECK_JOIN(test, number)); \
  static void CHECK_JOIN(test, number)()
#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) ::check::fail(__FILE__, __LINE__, #condition); \
  } while (false)
#define CHECK_EQ(a, b) ::check::checkEqual((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_NEAR(a, b, tolerance) ::check::checkNear((a), (b), (tolerance), #a " ~ " #b, __FILE__, __LINE__)
#define CHECK_THROWS_CODE(expression, code) \
  ::check::checkThrows([&] { static_cast<void>(expression); }, (code), #expression, __FILE__, __LINE__)
