// SPDX-License-Identifier: MPL-2.0
//
// The faults and their effects.
#include "fault.h"
#include "coherence.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string_view>

namespace swhip {
namespace {
struct Fault {
  std::string what;  // a call, `*`, `async`, or one of SILENT
  hipError_t error;
  long first, every;  // 0: once
  long seen = 0;
  bool strikes() {
    const long since = ++seen - first;
    return since == 0 || (every && since > 0 && since % every == 0);
  }
};
auto &faults = *new std::vector<Fault>;
bool owes_flip;   // to the next kernel that writes something
uint64_t struck;  // silent faults that have happened

const std::set<std::string> SILENT = {"drop", "stale", "flip", "table", "empty"};

[[noreturn]] void refuse(const std::string &fault) {
  fprintf(stderr,
          "swhip: '%s' is no fault; write hipMalloc:2@3 for the third call or drop:3 for the third kernel, and "
          "3+ for all later ones too, or 3+5 for every fifth of them\n",
          fault.c_str());
  abort();
}
Fault parse(const std::string &text) {
  static const std::regex form("([^:@]+):(?:([0-9]{1,9})@)?([0-9]{1,9})(?:(\\+)([0-9]{1,9})?)?");
  std::smatch part;
  if (!std::regex_match(text, part, form) || (SILENT.count(part[1]) == 1) == part[2].matched) refuse(text);
  const auto number = [&](size_t i, int otherwise) {
    return part[i].matched ? atoi(part[i].str().c_str()) : otherwise;
  };
  const long first = number(3, 0), every = part[4].matched ? number(5, 1) : 0;
  if (first < 1 || (part[5].matched && every < 1)) refuse(text);
  return {part[1], (hipError_t)number(2, 0), first, every};
}

// The sequence is the same in every run with the same seed.
uint64_t random_number() {
  uint64_t v = (state.seed + 1) * 0x9E3779B97F4A7C15ull + struck;
  v = (v ^ v >> 30) * 0xBF58476D1CE4E5B9ull;
  return v ^ v >> 27;
}
// The highest bit is the least likely to be lost by rounding.
void flip(char *at) { *at = (char)(*at ^ 0x80); }
}  // namespace

void set_faults(const char *list) {
  faults.clear();
  owes_flip = false;
  struck = 0;
  for (const std::string &one : split(list)) faults.push_back(parse(one));
}
hipError_t injected(const std::string &call) {
  hipError_t error = hipSuccess;
  for (Fault &fault : faults) {  // each counts, whatever the others do
    if (fault.what != call && (fault.what != "*" || call == "async")) continue;
    if (fault.strikes() && !error) error = fault.error;
  }
  return error;
}
bool strikes(const char *name) {
  bool now = false;
  for (Fault &fault : faults) now |= fault.what == name && fault.strikes();
  return now;
}
void count_silent_fault() {
  struck++;
  state.counts["faults"]++;
  state.counts["fault_at"] = state.counts["launches"];
}

Harm::Harm(const Command &command) : command(command) {
  const std::string_view what = command.what ? command.what : "";
  if (what == "launches") {
    skipped = strikes("drop");
    owes_flip |= strikes("flip");
    flips = owes_flip && !skipped;
    if (flips) remember();
  }
  if (what == "h2d" || what == "d2h" || what == "d2d") skipped = strikes("stale");
  if (command.constant) spoils_constant = strikes("table") && !skipped;
}
// In the order of the arguments, as addresses differ from run to run. Words that merely look like an address of pinned
// memory are excluded: the host may be writing there.
void Harm::remember() {
  for (const char *address : command.addresses) remember(address, {Kind::Device, Kind::Pinned});
  for (const char *word : command.words) remember(word, {Kind::Device});
}
void Harm::remember(const char *address, const std::set<Kind> &kinds) {
  const Allocation *allocation = owner(address, 1);
  if (!allocation || !kinds.count(allocation->kind)) return;
  char *first = on_the_device(first_byte(address));
  for (const Span &span : memory)
    if (span.at == first) return;
  memory.push_back({first, std::vector<char>(first, first + allocation->size)});
}
std::vector<char *> Harm::changed() const {
  std::vector<char *> bytes;
  for (const Span &span : memory)
    for (size_t i = 0; i < span.before.size(); i++)
      if (span.at[i] != span.before[i]) bytes.push_back(span.at + i);
  return bytes;
}
void Harm::strike() {
  if (skipped) count_silent_fault();
  if (spoils_constant) {
    flip(command.addresses[0] + random_number() % command.bytes);
    count_silent_fault();
  }
  if (!flips) return;
  const std::vector<char *> bytes = changed();
  if (bytes.empty()) return;
  flip(bytes[random_number() % bytes.size()]);
  owes_flip = false;
  count_silent_fault();
}
}  // namespace swhip
