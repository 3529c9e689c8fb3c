// An audit library (LD_AUDIT) that follows every call through the PLT, as sotruss and latrace do:
// to the function called, its caller is the loader.
#include <link.h>

#include <cstdint>

extern "C" {

[[gnu::visibility("default")]] unsigned la_version(unsigned /*version*/) {
    return LAV_CURRENT;
}

[[gnu::visibility("default")]] unsigned la_objopen(link_map* /*object*/, Lmid_t /*space*/,
                                                   std::uintptr_t* /*cookie*/) {
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

[[gnu::visibility("default")]] Elf64_Addr la_x86_64_gnu_pltenter(
    Elf64_Sym* symbol, unsigned /*index*/, std::uintptr_t* /*from*/, std::uintptr_t* /*to*/,
    La_x86_64_regs* /*registers*/, unsigned* /*flags*/, const char* /*name*/, long* frame_size) {
    constexpr long bytes_of_arguments = 512;
    *frame_size = bytes_of_arguments;
    return symbol->st_value;
}

[[gnu::visibility("default")]] unsigned la_x86_64_gnu_pltexit(
    Elf64_Sym* /*symbol*/, unsigned /*index*/, std::uintptr_t* /*from*/, std::uintptr_t* /*to*/,
    const La_x86_64_regs* /*before*/, La_x86_64_retval* /*after*/, const char* /*name*/) {
    return 0;
}
}
