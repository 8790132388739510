// SPDX-License-Identifier: MPL-2.0
//
// Checks the software device, and with it the kernels: `kernels`, `selftest`, `runtime`, or `bug NAME`, which
// succeeds if the mistake is caught.
#include "check.h"
#include "engine.h"
#include <cstring>
#include <elf.h>

std::vector<unsigned char> code_object(const std::string &arch, const std::vector<std::string> &kernels) {
  std::string strings(1, '\0');
  std::vector<Elf64_Sym> symbols(1);
  for (const std::string &kernel : kernels) {
    symbols.push_back({});
    symbols.back().st_name = (Elf64_Word)strings.size();
    strings += kernel + ".kd" + '\0';
  }
  const size_t symbols_size = symbols.size() * sizeof(Elf64_Sym),
               at_strings = sizeof(Elf64_Ehdr) + symbols_size;
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_machine = EM_AMDGPU;
  header.e_flags = arch.compare(0, 6, "gfx90a") == 0 ? 0x3f : 0x41;  // or gfx1100
  header.e_shoff = at_strings + strings.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  Elf64_Shdr sections[3]{};
  sections[1].sh_type = SHT_DYNSYM;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = symbols_size;
  sections[1].sh_link = 2;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = at_strings;
  sections[2].sh_size = strings.size();
  std::vector<unsigned char> image;
  const auto append = [&](const void *at, size_t size) {
    image.insert(image.end(), (const unsigned char *)at, (const unsigned char *)at + size);
  };
  append(&header, sizeof header);
  append(symbols.data(), symbols_size);
  append(strings.data(), strings.size());
  append(sections, sizeof sections);
  return image;
}

static std::string arch_of_device() {
  int device;
  char properties[1472];
  OK(hipGetDevice(&device));
  OK(hipGetDevicePropertiesR0600(properties, device));
  return properties + 1160;
}
Kernels::Kernels() {
  std::vector<std::string> names;
  for (const hv::Kernel *kernel = hv::kernels; kernel; kernel = kernel->next) names.push_back(kernel->name);
  image = code_object(arch_of_device(), names);
  OK(hipModuleLoadData(&module, image.data()));
}
Kernels::~Kernels() { hipModuleUnload(module); }
hipFunction_t Kernels::operator[](const std::string &name) const {
  hipFunction_t function = nullptr;
  OK(hipModuleGetFunction(&function, module, name.c_str()));
  return function;
}

int main(int count, char **arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  if (what == "kernels") run_kernels();
  else if (what == "selftest") run_selftest();
  else if (what == "runtime") run_runtime();
  else if (what == "bug" && count == 3) return caught(arguments[2]) ? 0 : 1;
  else {
    fprintf(stderr, "usage: %s kernels | selftest | runtime | bug NAME\n", arguments[0]);
    return 2;
  }
  for (const char *object :
       {"allocs", "pinned", "registered", "external", "streams", "events", "modules", "graphs"})
    EXPECT(swhip_live(object) == 0);
}
