// SPDX-License-Identifier: MPL-2.0
//
// Faults: calls that return errors, commands that lose the device, and silent ones, after which every call still
// succeeds.
#pragma once
#include "device.h"

namespace swhip {
// Replaces all faults; counting starts now.
void set_faults(const char *list);
// Returns the error that a call of this name must return, or a command if it is called `async`.
hipError_t injected(const std::string &call);
// Returns true if the silent fault of this name applies to the present event, which it counts.
bool strikes(const char *fault);
// Counts a silent fault.
void count_silent_fault();

// The silent faults that apply to one command of a stream. The mutex is held at construction and destruction.
class Harm {
 public:
  explicit Harm(const Command &command);
  // Returns true if the command does nothing.
  bool skips() const { return skipped; }
  // Damages the result after the command has run and was counted.
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
