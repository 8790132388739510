// SPDX-License-Identifier: MPL-2.0
//
// Macros of the generated comparison with HIP's headers. It compiles if everything agrees.
#pragma once
#define __HIP_PLATFORM_AMD__
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <type_traits>

// How an argument is passed and what a pointer points to, in the letters of `code` in src/tests.rs.
template <class T> constexpr const char *code() {
  using Target = std::remove_cv_t<std::remove_pointer_t<T>>;
  if (std::is_pointer_v<T>) {
    if (std::is_pointer_v<Target>) return "**";
    if (std::is_same_v<Target, int>) return "*i";
    if (std::is_same_v<Target, size_t>) return "*z";
    if (std::is_same_v<Target, float>) return "*f";
    if (std::is_same_v<Target, char>) return "*c";
    return std::is_arithmetic_v<Target> || std::is_enum_v<Target> ? "*?" : "*v";
  }
  if (std::is_same_v<T, int> || (std::is_enum_v<T> && sizeof(T) == sizeof(int))) return "i";
  if (std::is_same_v<T, unsigned>) return "u";
  return std::is_same_v<T, size_t> ? "z" : "?";
}

template <class F> struct Signature;
template <class R, class... Args> struct Signature<R (*)(Args...)> {
  static_assert(std::is_same_v<R, hipError_t> && sizeof(R) == sizeof(int), "the status is an int");
  static constexpr bool is(std::initializer_list<std::string_view> want) {
    const std::string_view mine[] = {"", code<Args>()...};
    size_t at = 0;
    for (std::string_view one : want)
      if (++at > sizeof...(Args) || one != mine[at]) return false;
    return at == sizeof...(Args);
  }
};

#define CONSTANT(name, value) static_assert((long long)(name) == value, #name);
#define FUNCTION(name, ...) static_assert(Signature<decltype(&name)>::is({__VA_ARGS__}), #name);
#define FIELD(type, field, at, room) \
  static_assert(offsetof(type, field) == at, #type "::" #field); \
  static_assert(sizeof(type) <= room, #type " is larger than what the crate passes");

// ROCm 6 changed these.
#if HIP_VERSION_MAJOR >= 6
#define BEFORE_6(...)
#define SINCE_6(...) __VA_ARGS__
#else
#define BEFORE_6(...) __VA_ARGS__
#define SINCE_6(...)
#endif
