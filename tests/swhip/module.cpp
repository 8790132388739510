// SPDX-License-Identifier: MPL-2.0
//
// Modules: an image must be the AMD code object that the real runtime would load on this GPU, and contain the kernel.
// The kernel that runs was compiled for the CPU.
#include "coherence.h"
#include "engine.h"
#include "module.h"
#include <cstdio>
#include <cstring>
#include <elf.h>

namespace swhip {
struct Module {
  const unsigned char *image;  // null where the runtime has a copy
  size_t size;
  uint64_t hash;
  int device;
  std::set<std::string> kernels;
};
struct Function {
  const hv::Kernel *kernel;
  std::weak_ptr<Module> module;
  int device;
};

namespace {
// The arguments of a kernel, copied at its launch. A word is any eight bytes of them: an address, numbers, or within a
// structure a number beside garbage that may look like an address.
class Arguments {
 public:
  static constexpr size_t WORDS = 512, COUNT = 64;
  alignas(16) char *words[WORDS] = {};

  void save(const hv::Kernel &kernel, void **given) {
    void *at[COUNT];
    kernel.save(given, (unsigned char *)words, at);
    for (int i = 0; i < kernel.nargs; i++) offsets.push_back((size_t)((char *)at[i] - (char *)words));
  }
  // The arguments that fill a word, including all addresses that are not part of a structure.
  std::vector<char **> whole_words() {
    std::vector<char **> whole;
    for (size_t i = 0; i < offsets.size(); i++) {
      const size_t end = i + 1 < offsets.size() ? offsets[i + 1] : offsets[i] + sizeof(char *);
      if (offsets[i] % sizeof(char *) == 0 && end - offsets[i] == sizeof(char *))
        whole.push_back(words + offsets[i] / sizeof(char *));
    }
    return whole;
  }
  // The addresses of the arguments.
  std::vector<void *> slots() {
    std::vector<void *> at;
    for (const size_t offset : offsets) at.push_back((char *)words + offset);
    return at;
  }

 private:
  std::vector<size_t> offsets;
};

// e_flags & 0xff of the GPU targets of the build.
const struct {
  unsigned machine;
  const char *name;
} PROCESSORS[] = {
    {0x2f, "gfx906"},          {0x30, "gfx908"},          {0x3f, "gfx90a"},          {0x4c, "gfx942"},
    {0x4f, "gfx950"},          {0x33, "gfx1010"},         {0x34, "gfx1011"},         {0x35, "gfx1012"},
    {0x42, "gfx1013"},         {0x36, "gfx1030"},         {0x37, "gfx1031"},         {0x38, "gfx1032"},
    {0x39, "gfx1033"},         {0x3e, "gfx1034"},         {0x3d, "gfx1035"},         {0x45, "gfx1036"},
    {0x41, "gfx1100"},         {0x46, "gfx1101"},         {0x47, "gfx1102"},         {0x44, "gfx1103"},
    {0x43, "gfx1150"},         {0x4a, "gfx1151"},         {0x48, "gfx1200"},         {0x4e, "gfx1201"},
    {0x51, "gfx9-generic"},    {0x53, "gfx10-3-generic"}, {0x54, "gfx11-generic"},   {0x59, "gfx12-generic"},
};
bool runs_on(const std::string &code, const std::string &processor) {
  const auto begins = [&](const char *prefix) { return processor.compare(0, strlen(prefix), prefix) == 0; };
  if (code == "gfx9-generic")
    return processor == "gfx906" || processor == "gfx900" || processor == "gfx902" || processor == "gfx904" ||
           processor == "gfx909" || processor == "gfx90c";
  if (code == "gfx10-3-generic") return begins("gfx103");
  if (code == "gfx11-generic") return begins("gfx11");
  if (code == "gfx12-generic") return begins("gfx120");
  return code == processor;
}

template <class T>
T read_at(const unsigned char *image, size_t offset) {
  T value;
  memcpy(&value, image + offset, sizeof value);
  return value;
}
// Finds kernels by the symbols of their descriptors. The length of an image is unknown, so a damaged one is read as it
// is.
std::set<std::string> kernels_of(const unsigned char *image, const Elf64_Ehdr &header) {
  std::set<std::string> names;
  const auto section = [&](size_t i) {
    return read_at<Elf64_Shdr>(image, header.e_shoff + i * header.e_shentsize);
  };
  for (size_t i = 0; i < header.e_shnum; i++) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_DYNSYM) continue;
    const Elf64_Shdr strings = section(table.sh_link);
    for (size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(image, table.sh_offset + at);
      const std::string name = (const char *)image + strings.sh_offset + symbol.st_name;
      const size_t end = name.rfind(".kd");
      if (end != std::string::npos) names.insert(name.substr(0, end));
    }
  }
  return names;
}
uint64_t hash_of(const unsigned char *image, size_t size) {
  uint64_t hash = 0;
  for (size_t i = 0; i < size; i++) hash = (hash ^ image[i]) * 0x100000001b3;
  return hash;
}
// The runtime keeps the pointer instead of a copy.
bool unchanged(const Module &module) {
  if (!module.image || hash_of(module.image, module.size) == module.hash) return true;
  fprintf(stderr, "swhip: the image of a module has changed since it was loaded\n");
  return false;
}
// Finds the names after `.entry`.
std::set<std::string> kernels_of(const std::string &ptx) {
  const std::string entry = ".entry ";
  std::set<std::string> names;
  for (size_t at = ptx.find(entry); at != std::string::npos; at = ptx.find(entry, at + 1)) {
    const size_t first = at + entry.size();
    names.insert(ptx.substr(first, ptx.find_first_of("( \n", first) - first));
  }
  return names;
}
hipError_t add(hipModule_t *module, Module made) {
  const auto added = std::make_shared<Module>(std::move(made));
  *module = added.get();
  state.modules[*module] = added;
  return hipSuccess;
}
}  // namespace

hipError_t load_ptx(hipModule_t *module, const char *text) {
  Call call("hipModuleLoadData");
  if (call.error) RETURN(call.error);
  if (!module || !text) RETURN(hipErrorInvalidValue);
  if (const hipError_t error = forbidden_by_capture()) RETURN(error);
  const std::string ptx = text, target = ".target sm_";
  const size_t at = ptx.find(target);
  if (ptx.find(".version ") == std::string::npos || at == std::string::npos) RETURN(hipErrorInvalidImage);
  const std::string &arch = state.devices[(size_t)current_device()].arch;
  if (atoi(ptx.c_str() + at + target.size()) > atoi(arch.c_str() + strlen("sm_")))
    RETURN(hipErrorInvalidKernelFile);
  RETURN(add(module, {nullptr, 0, 0, current_device(), kernels_of(ptx)}));
}
}  // namespace swhip

using namespace swhip;

hipError_t hipModuleLoadData(hipModule_t *module, const void *data) {
  ENTER();
  const auto image = (const unsigned char *)data;
  if (!module || !image) RETURN(hipErrorInvalidValue);
  if (const hipError_t error = forbidden_by_capture()) RETURN(error);
  if (memcmp(image, ELFMAG, SELFMAG) != 0) RETURN(hipErrorInvalidImage);
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (header.e_machine != EM_AMDGPU) RETURN(hipErrorInvalidImage);
  const std::string &arch = state.devices[(size_t)current_device()].arch;
  std::string code;
  for (const auto &processor : PROCESSORS)
    if (processor.machine == (header.e_flags & 0xff)) code = processor.name;
  if (!runs_on(code, arch.substr(0, arch.find(':')))) RETURN(hipErrorNoBinaryForGpu);
  const size_t size = header.e_shoff + (size_t)header.e_shentsize * header.e_shnum;
  RETURN(add(module, {image, size, hash_of(image, size), current_device(), kernels_of(image, header)}));
}
hipError_t hipModuleUnload(hipModule_t handle) {
  ENTER_RELEASE();
  const auto found = state.modules.find(handle);
  if (found == state.modules.end()) RETURN_RELEASED(hipErrorInvalidHandle);
  const bool good = unchanged(*found->second);
  for (auto function = state.functions.begin(); function != state.functions.end();)
    function = function->second->module.lock() == found->second ? state.functions.erase(function)
                                                                : std::next(function);
  state.modules.erase(found);
  RETURN_RELEASED(good ? hipSuccess : hipErrorInvalidImage);
}
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t handle, const char *name) {
  ENTER();
  const auto found = state.modules.find(handle);
  if (!function || !name || found == state.modules.end()) RETURN(hipErrorInvalidHandle);
  const std::shared_ptr<Module> module = found->second;
  if (!unchanged(*module)) RETURN(hipErrorInvalidImage);
  if (!module->kernels.count(name)) RETURN(hipErrorNotFound);
  const int wave = state.devices[(size_t)module->device].wave();
  for (const hv::Kernel *kernel = hv::kernels; kernel; kernel = kernel->next) {
    if (strcmp(kernel->name, name) != 0 || kernel->wave != wave) continue;
    const auto made = std::make_shared<Function>(Function{kernel, module, module->device});
    *function = made.get();
    state.functions[*function] = made;
    RETURN(hipSuccess);
  }
  RETURN(hipErrorNotFound);
}
hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 hipStream_t stream_handle, void **parameters, void **extra) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(stream_handle);
  const auto found = state.functions.find(handle);
  if (!stream || found == state.functions.end() || found->second->device != stream->device)
    RETURN(hipErrorInvalidHandle);
  const hv::Kernel *kernel = found->second->kernel;
  const uint64_t blocks = (uint64_t)grid_x * grid_y * grid_z, threads = (uint64_t)block_x * block_y * block_z;
  if (!blocks || !threads || threads > (uint64_t)kernel->max_threads) RETURN(hipErrorInvalidValue);
  if (!parameters || extra || shared_bytes) RETURN(hipErrorInvalidValue);  // unused by our kernels
  const hv::Dim grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  const auto arguments = std::make_shared<Arguments>();
  arguments->save(*kernel, parameters);
  const auto run = [=, module = found->second->module](hipError_t) {
    const char *problem = "a kernel runs after its module was unloaded";
    if (!module.expired()) {
      Arguments translated = *arguments;
      for (char **word : translated.whole_words()) *word = on_the_device(*word);
      problem = hv::run_grid(kernel, grid, block, translated.slots().data(), state.seed);
    }
    if (!problem) return hipSuccess;
    fprintf(stderr, "swhip: %s\n", problem);
    return hipErrorIllegalAddress;
  };
  Command command{"launches", 0, run};
  for (char **word : arguments->whole_words()) command.addresses.push_back(*word);
  for (char *word : arguments->words)
    if (word) command.words.push_back(word);
  RETURN(push(stream, std::move(command)));
}
