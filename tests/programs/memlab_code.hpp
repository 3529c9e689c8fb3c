// Where libmemlab.so's code lies, for programs whose signal handlers look where their thread was.
#pragma once

#include <link.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

namespace program {

class MemlabCode {
  public:
    /// Call before any signal comes.
    void find() { ::dl_iterate_phdr(visit, this); }
    /// Without memlab in the process, never.
    bool is_there() const { return end_ != 0; }
    bool was_interrupted(const void* context) const {
        return place_of(context) >= start_ && place_of(context) < end_;
    }
    /// Where a signal handler's thread was.
    static std::uintptr_t place_of(const void* context) {
        return static_cast<std::uintptr_t>(
            static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    }

  private:
    static int visit(dl_phdr_info* info, std::size_t, void* self) {
        if (std::strstr(info->dlpi_name, "libmemlab") == nullptr) {
            return 0;
        }
        auto& code = *static_cast<MemlabCode*>(self);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& part = info->dlpi_phdr[i];
            if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) {
                code.start_ = info->dlpi_addr + part.p_vaddr;
                code.end_ = code.start_ + part.p_memsz;
            }
        }
        return 1;
    }

    std::uintptr_t start_ = 0;
    std::uintptr_t end_ = 0;
};

}  // namespace program
