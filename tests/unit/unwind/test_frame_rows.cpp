// Every function of every library loaded here: our reading of .eh_frame against elfutils'.
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "profiler/unwind/frame_row.hpp"
#include "profiler/unwind/frame_tables.hpp"
#include "profiler/unwind/modules.hpp"
#include "profiler/unwind/rules.hpp"
#include "tests/catch.hpp"

namespace unwind = memlab::profiler::unwind;
using How = unwind::RegisterRule::How;

namespace {

struct Object {
    std::string path;
    std::uintptr_t bias;
    std::uintptr_t header;
};

std::vector<Object> loaded_objects() {
    std::vector<Object> objects;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            Object object{info->dlpi_name, info->dlpi_addr, 0};
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) {
                    object.header = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
                }
            }
            if (object.path.empty()) {
                object.path = "/proc/self/exe";
            }
            static_cast<std::vector<Object>*>(result)->push_back(object);
            return 0;
        },
        &objects);
    return objects;
}

// Where each FDE's code begins, by the search table.
std::vector<std::uintptr_t> functions_of(const Object& object) {
    const auto* words = reinterpret_cast<const std::int32_t*>(object.header);
    std::vector<std::uintptr_t> functions;
    functions.reserve(static_cast<std::size_t>(words[2]));
    for (std::int32_t i = 0; i < words[2]; ++i) {
        functions.push_back(object.header +
                            static_cast<std::uintptr_t>(std::intptr_t{words[3 + 2 * i]}));
    }
    return functions;
}

// One form for both sides' rules.
std::string text(const char* how, std::int64_t number) {
    return std::string(how) + std::to_string(number);
}

std::string text(const unwind::RegisterRule& rule) {
    switch (rule.how) {
        case How::same:
            return "same";
        case How::undefined:
            return "undefined";
        case How::at_offset:
            return text("at cfa", rule.offset);
        case How::is_offset:
            return text("cfa", rule.offset);
        case How::in_register:
            return text("register", rule.offset);
        case How::at_expression:
        case How::is_expression:
            return "expression";
    }
    return "?";
}

std::string cfa_text(Dwarf_Op* operations, std::size_t count) {
    if (count == 1 && operations[0].atom == DW_OP_bregx) {
        return text("register", static_cast<std::int64_t>(operations[0].number)) + " " +
               std::to_string(static_cast<std::int64_t>(operations[0].number2));
    }
    if (count == 1 && operations[0].atom >= DW_OP_breg0 && operations[0].atom <= DW_OP_breg31) {
        return text("register", operations[0].atom - DW_OP_breg0) + " " +
               std::to_string(static_cast<std::int64_t>(operations[0].number));
    }
    return "expression";
}

std::string register_text(Dwarf_Frame* frame, std::size_t reg) {
    Dwarf_Op memory[3];
    Dwarf_Op* operations = nullptr;
    std::size_t count = 0;
    if (dwarf_frame_register(frame, static_cast<int>(reg), memory, &operations, &count) != 0) {
        return "none";
    }
    if (count == 0) {
        // What is not mentioned counts as undefined in elfutils, as kept in libgcc.
        return operations == nullptr || reg != unwind::column::rip ? "same" : "undefined";
    }
    if (operations == memory && operations[0].atom == DW_OP_call_frame_cfa) {
        std::int64_t offset = 0;
        std::size_t used = 1;
        if (count > used && operations[used].atom == DW_OP_plus_uconst) {
            offset = static_cast<std::int64_t>(operations[used++].number);
        }
        return text(count > used ? "cfa" : "at cfa", offset);
    }
    if (count == 1 && operations[0].atom == DW_OP_regx) {
        return text("register", static_cast<std::int64_t>(operations[0].number));
    }
    return "expression";
}

struct Counts {
    unsigned long rows = 0;
    unsigned long kinds[5] = {};
};

// The rows at a function's first bytes, and at some of the rest.
void compare_function(Dwarf_CFI* cfi, const Object& object, const unwind::FrameTables& tables,
                      std::uintptr_t function, Counts& counts) {
    unwind::FrameDescription description;
    REQUIRE(unwind::find_frame_description(tables, function, &description));
    REQUIRE(description.code.begin == function);
    const std::uintptr_t size = description.code.end - description.code.begin;
    const std::uintptr_t stride = size / 24 + 1;
    for (std::uintptr_t offset = 0; offset < size; offset += offset < 16 ? 1 : stride) {
        const std::uintptr_t address = function + offset;
        unwind::FrameRow row;
        const bool read = unwind::compute_frame_row(description, address, &row);
        Dwarf_Frame* frame = nullptr;
        const bool expected = dwarf_cfi_addrframe(cfi, address - object.bias, &frame) == 0;
        const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> owner(frame, &std::free);
        INFO(object.path << " at " << std::hex << address - object.bias);
        REQUIRE(read);
        REQUIRE(expected);
        bool signal_frame = false;
        Dwarf_Addr start = 0;
        Dwarf_Addr end = 0;
        dwarf_frame_info(frame, &start, &end, &signal_frame);
        Dwarf_Op* operations = nullptr;
        std::size_t count = 0;
        REQUIRE(dwarf_frame_cfa(frame, &operations, &count) == 0);
        std::string cfa = text(row.cfa);
        if (row.cfa.how == How::in_register) {
            cfa += " " + std::to_string(row.cfa_offset);
        }
        if (cfa != cfa_text(operations, count) || signal_frame != description.signal_frame) {
            CHECK(cfa == cfa_text(operations, count));
            CHECK(signal_frame == description.signal_frame);
        }
        // Those that a function keeps: of the others nobody says anything.
        for (const std::size_t reg : {3, 6, 12, 13, 14, 15, 16}) {
            std::string ours = text(row.registers[reg]);
            if (ours == "undefined" && reg != unwind::column::rip) {
                ours = "same";
            }
            if (ours != register_text(frame, reg)) {
                INFO("register " << reg);
                CHECK(ours == register_text(frame, reg));
            }
        }
        const unwind::Rule rule = unwind::Rule::from_row(row, description.signal_frame);
        ++counts.rows;
        ++counts.kinds[static_cast<int>(rule.kind())];
    }
}

}  // namespace

TEST_CASE("every unwind table row of every loaded library is read as elfutils reads it") {
    for (const char* more :
         {"libcrypto.so.3", "libdw.so.1", "libpython3.11.so.1.0", "libssl.so.3"}) {
        dlopen(more, RTLD_NOW);  // whichever is here: assembly and C of another hand
    }
    elf_version(EV_CURRENT);
    Counts counts;
    int objects = 0;
    for (const Object& object : loaded_objects()) {
        const int file = open(object.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0 || object.header == 0) {  // the vDSO is no file
            continue;
        }
        Elf* elf = elf_begin(file, ELF_C_READ_MMAP, nullptr);
        Dwarf_CFI* cfi = dwarf_getcfi_elf(elf);
        REQUIRE(cfi != nullptr);
        const std::vector<std::uintptr_t> functions = functions_of(object);
        REQUIRE_FALSE(functions.empty());
        unwind::FrameTables tables;
        REQUIRE(unwind::find_frame_tables(functions[0], &tables) == unwind::ObjectTables::found);
        const std::size_t stride = functions.size() / 4000 + 1;
        for (std::size_t i = 0; i < functions.size(); i += stride) {
            compare_function(cfi, object, tables, functions[i], counts);
        }
        dwarf_cfi_end(cfi);
        elf_end(elf);
        close(file);
        ++objects;
    }
    CHECK(objects >= 5);
    CHECK(counts.rows > 100000);
    WARN(objects << " objects, " << counts.rows << " rows: " << counts.kinds[1] << " plain, "
                 << counts.kinds[2] << " realigned, " << counts.kinds[3] << " ends, "
                 << counts.kinds[4] << " general");
    CHECK(counts.kinds[4] * 20 < counts.rows);  // the stubs of the PLT, mostly
}
