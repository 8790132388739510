// SPDX-License-Identifier: MPL-2.0
//
// Faults: calls that return errors, commands that lose the device, and silent ones, after which every call
// goes on to succeed.
#pragma once
#include "device.h"

namespace swhip {
// Replaces all faults; they count from now on.
void set_faults(const char *list);
// The error that a call of this name is to return, or a command if it is called `async`.
hipError_t injected(const std::string &call);
// Whether the silent fault of this name strikes what happens now, which counts for it.
bool strikes(const char *fault);
// A silent fault has happened.
void count_silent_fault();

// The silent faults that strike one command of a stream. The mutex is held at both ends of its life.
class Harm {
 public:
  explicit Harm(const Command &command);
  // Whether the command does nothing.
  bool skips() const { return skipped; }
  // Does the damage, once the command has run and was counted.
  void strike();

 private:
  struct Span {
    char *at;
    std::vector<char> before;
  };
  void remember();
  void remember(const char *address, const std::set<Kind> &kinds);
  std::vector<char *> changed() const;

  const Command &command;
  bool skipped = false, flips = false, spoils_constant = false;
  std::vector<Span> memory;  // that the command may write
};
}  // namespace swhip
