#include "report/symbols/symbolizer.hpp"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "report/symbols/debuginfod.hpp"
#include "report/symbols/dwarf_functions.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

std::string to_hex(const unsigned char* bytes, int count) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (int i = 0; i < count; ++i) {
        text += digits[bytes[i] >> 4];
        text += digits[bytes[i] & 15];
    }
    return text;
}

std::string read_build_id(Dwfl_Module* module) {
    const unsigned char* bits = nullptr;
    GElf_Addr where = 0;
    const int length = dwfl_module_build_id(module, &bits, &where);
    return length > 0 ? to_hex(bits, length) : std::string();
}

/// The build id of an open file; empty when it has none or is not an ELF file.
std::string read_build_id(int file) {
    Elf* elf = elf_begin(file, ELF_C_READ_MMAP, nullptr);
    const void* bits = nullptr;
    const ssize_t length = elf == nullptr ? 0 : dwelf_elf_gnu_build_id(elf, &bits);
    std::string text;
    if (length > 0) {
        text = to_hex(static_cast<const unsigned char*>(bits), static_cast<int>(length));
    }
    elf_end(elf);
    return text;
}

/// The build id of the file that debug information shares with that of other binaries (dwz); empty:
/// there is none.
std::string read_shared_build_id(int file) {
    Dwarf* const debug = dwarf_begin(file, DWARF_C_READ);
    const char* name = nullptr;
    const void* bits = nullptr;
    const ssize_t length = debug == nullptr ? 0 : dwelf_dwarf_gnu_debugaltlink(debug, &name, &bits);
    std::string text;
    if (length > 0) {
        text = to_hex(static_cast<const unsigned char*>(bits), static_cast<int>(length));
    }
    dwarf_end(debug);
    return text;
}

/// Wraps libdw's search of this machine: what is not here comes from the servers if allowed. What
/// they send is of the build id, which is checked. libdw asks twice: for the module's own file and
/// then, with the same `userdata`, for the one that it shares with others.
int find_debuginfo(Dwfl_Module* module, void** userdata, const char* name, Dwarf_Addr base,
                   const char* file, const char* link, GElf_Word checksum, char** found) {
    int result =
        dwfl_standard_find_debuginfo(module, userdata, name, base, file, link, checksum, found);
    if (!debuginfod_allowed()) {
        return result;
    }
    const auto* const shared = static_cast<const std::string*>(*userdata);
    const std::string build_id = shared == nullptr ? read_build_id(module) : *shared;
    if (result < 0 && !build_id.empty()) {
        if (const std::string path = fetch_debuginfo(build_id); !path.empty()) {
            result = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        }
        if (result >= 0 && read_build_id(result) != build_id) {
            ::close(result);
            debuginfod_sent_another_build();
            return -1;
        }
    }
    if (shared == nullptr && result >= 0) {
        static std::deque<std::string> shared_build_ids;
        *userdata = &shared_build_ids.emplace_back(read_shared_build_id(result));
    }
    return result;
}

const Dwfl_Callbacks dwfl_callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = nullptr,
};

/// One binary, opened at most once.
class SymbolModule {
  public:
    SymbolModule(const std::string& path, const std::string& build_id) { open(path, build_id); }

    SymbolModule(const SymbolModule&) = delete;
    SymbolModule& operator=(const SymbolModule&) = delete;
    ~SymbolModule() {
        if (dwfl_ != nullptr) {
            dwfl_end(dwfl_);
        }
    }

    const ResolvedAddress& resolve(std::uint64_t return_address) {
        auto [entry, is_new] = resolved_.try_emplace(return_address);
        if (is_new) {
            entry->second.problem = problem_;
            if (module_ != nullptr) {
                look_up(return_address, entry->second);
            }
        }
        return entry->second;
    }

  private:
    void open(const std::string& path, const std::string& build_id) {
        struct stat status {};
        // A recording may have any path; opening a pipe or device could block.
        if (path.empty() || stat(path.c_str(), &status) != 0) {
            problem_ = path.empty() || errno == ENOENT ? "file not found" : std::strerror(errno);
            return;
        }
        if (!S_ISREG(status.st_mode)) {
            problem_ = "not a regular file";
            return;
        }
        dwfl_ = dwfl_begin(&dwfl_callbacks);
        if (dwfl_ == nullptr) {
            problem_ = "libdw: " + std::string(dwfl_errmsg(-1));
            return;
        }
        Dwfl_Module* module = dwfl_report_offline(dwfl_, path.c_str(), path.c_str(), -1);
        if (module == nullptr) {
            problem_ = "not readable as ELF";
            return;
        }
        dwfl_report_end(dwfl_, nullptr, nullptr);
        Elf* elf = dwfl_module_getelf(module, &bias_);
        if (elf == nullptr) {
            problem_ = "not readable as ELF";
            return;
        }
        find_code(elf);
        if (!build_id.empty() && read_build_id(module) != build_id) {
            problem_ = "binary changed";
            return;
        }
        module_ = module;
    }

    void find_code(Elf* elf) {
        std::size_t count = 0;
        if (elf_getphdrnum(elf, &count) != 0) {
            return;
        }
        for (std::size_t i = 0; i < count; ++i) {
            GElf_Phdr header;
            if (gelf_getphdr(elf, static_cast<int>(i), &header) != nullptr &&
                header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
                code_.emplace_back(header.p_vaddr, header.p_memsz);
            }
        }
    }

    /// Whether an address is in code; discarded functions have debug information at address 0.
    bool is_code(std::uint64_t address) const {
        return std::any_of(code_.begin(), code_.end(), [address](const auto& range) {
            return address - range.first < range.second;
        });
    }

    void look_up(std::uint64_t return_address, ResolvedAddress& out) {
        if (!is_code(return_address - 1)) {
            out.problem = "no symbols";
            return;
        }
        // The byte before the return address is in the call. A call that never returns may be the
        // last instruction of its function: the return address may be in the next one.
        const Dwarf_Addr pc = return_address - 1 + bias_;
        add_debug_frames(pc, out);
        if (out.frames.empty()) {
            add_symbol_frame(pc, model::SourceFrame(), out);
        }
        if (out.frames.empty()) {
            out.problem = "no symbols";
        }
    }

    /// A predicate: whether a range of debug information addresses is in code.
    auto in_code() const {
        return [this](Dwarf_Addr begin, Dwarf_Addr end) {
            const std::uint64_t shift = dwarf_bias_ - bias_;
            return is_code(begin + shift) && is_code(end - 1 + shift);
        };
    }

    /// The unit that contains `pc`, by the ranges of the unit DIEs; null if there is none. (libdw
    /// uses .debug_aranges, which clang does not write, and assigns gaps between units to the
    /// first.)
    Dwarf_Die* find_unit(Dwarf_Addr pc) {
        if (!units_) {
            units_.emplace();
            Dwarf* dwarf = dwfl_module_getdwarf(module_, &dwarf_bias_);
            Dwarf_CU* unit = nullptr;
            Dwarf_Die die;
            std::uint8_t type = 0;
            while (dwarf_get_units(dwarf, unit, &unit, nullptr, &type, &die, nullptr) == 0) {
                if (type == DW_UT_compile || type == DW_UT_skeleton) {
                    units_->add(die, in_code());
                }
            }
            units_->sort();
        }
        return units_->find(pc - dwarf_bias_);
    }

    /// Frames from DWARF: the innermost line from the line table, those of callers from the call
    /// site of the inlined function.
    void add_debug_frames(Dwarf_Addr pc, ResolvedAddress& out) {
        Dwarf_Die* unit = find_unit(pc);
        if (unit == nullptr) {
            return;
        }
        const Dwarf_Addr address = pc - dwarf_bias_;
        model::SourceFrame frame;
        const char* directory = compilation_directory(unit);  // a split unit has none
        set_line(unit, address, directory, frame);

        Dwarf_Die split;
        unit = unit_with_scopes(unit, &split);
        const auto [functions, is_new] = functions_.try_emplace(unit->addr);
        if (is_new) {
            add_functions(*unit, in_code(), functions->second);
        }
        Dwarf_Die* function = functions->second.find(address);
        if (function == nullptr) {
            add_symbol_frame(pc, std::move(frame), out);
            return;
        }
        Dwarf_Files* files = nullptr;
        std::size_t file_count = 0;
        if (dwarf_getsrcfiles(unit, &files, &file_count) != 0) {
            files = nullptr;
        }
        std::vector<Dwarf_Die> inlined = inlined_at(*function, address);
        for (; !inlined.empty(); inlined.pop_back()) {
            Dwarf_Die& die = inlined.back();
            frame.function = linkage_name(&die);
            if (frame.function.empty()) {
                frame.function = source_name(&die);
            }
            frame.inlined = true;
            out.frames.push_back(std::move(frame));
            frame = model::SourceFrame();
            set_call_line(&die, directory, files, frame);
        }
        frame.function = linkage_name(function);
        if (frame.function.empty()) {
            frame.function = source_name(function);
            // The linkage name of a C++ function has its parameters and the number of a lambda.
            const std::string symbol = symbol_name(pc);
            if (frame.function.empty() || symbol.starts_with("_Z")) {
                frame.function = symbol.empty() ? frame.function : demangle(symbol.c_str());
            }
        }
        out.frames.push_back(std::move(frame));
    }

    /// With -gsplit-dwarf the program has skeleton units with the lines; the functions are in a
    /// .dwo file, if it exists.
    static Dwarf_Die* unit_with_scopes(Dwarf_Die* unit, Dwarf_Die* split) {
        std::uint8_t type = 0;
        const bool found = dwarf_cu_info(unit->cu, nullptr, &type, nullptr, split, nullptr, nullptr,
                                         nullptr) == 0 &&
                           type == DW_UT_skeleton && split->addr != nullptr;
        return found ? split : unit;
    }

    /// The name of the function at `pc` in the symbol table; empty when there is none.
    std::string symbol_name(Dwarf_Addr pc) {
        GElf_Off offset = 0;
        GElf_Sym symbol;
        const char* name =
            dwfl_module_addrinfo(module_, pc, &offset, &symbol, nullptr, nullptr, nullptr);
        // Only functions: addresses before the first one or in a gap belong to none.
        const bool is_function =
            name != nullptr && (GELF_ST_TYPE(symbol.st_info) == STT_FUNC ||
                                GELF_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC ||
                                GELF_ST_TYPE(symbol.st_info) == STT_NOTYPE);
        return is_function && (symbol.st_size == 0 || offset < symbol.st_size) ? name : "";
    }

    void add_symbol_frame(Dwarf_Addr pc, model::SourceFrame frame, ResolvedAddress& out) {
        frame.function = demangle(symbol_name(pc).c_str());
        if (!frame.function.empty() || frame.line > 0) {
            out.frames.push_back(std::move(frame));
        }
    }

    /// Takes the row of the line table that covers `pc`: the last one at or before it, unless that
    /// ends a sequence.
    static void set_line(Dwarf_Die* unit, Dwarf_Addr pc, const char* directory,
                         model::SourceFrame& frame) {
        Dwarf_Lines* lines = nullptr;  // sorted by address
        std::size_t count = 0;
        if (dwarf_getsrclines(unit, &lines, &count) != 0) {
            return;
        }
        std::size_t begin = 0;
        for (std::size_t end = count; begin < end;) {
            const std::size_t middle = begin + (end - begin) / 2;
            Dwarf_Addr address = 0;
            dwarf_lineaddr(dwarf_onesrcline(lines, middle), &address);
            (address <= pc ? begin : end) = address <= pc ? middle + 1 : middle;
        }
        Dwarf_Line* line = begin == 0 ? nullptr : dwarf_onesrcline(lines, begin - 1);
        bool is_end = true;
        if (line == nullptr || dwarf_lineendsequence(line, &is_end) != 0 || is_end) {
            return;
        }
        dwarf_lineno(line, &frame.line);
        frame.file = absolute_file(dwarf_linesrc(line, nullptr, nullptr), directory);
    }

    static void set_call_line(Dwarf_Die* inlined, const char* directory, Dwarf_Files* files,
                              model::SourceFrame& frame) {
        Dwarf_Attribute attribute;
        Dwarf_Word value = 0;
        if (files != nullptr &&
            dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &value) == 0) {
            const char* file = dwarf_filesrc(files, value, nullptr, nullptr);
            frame.file = absolute_file(file, directory);
        }
        if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &value) == 0) {
            frame.line = static_cast<int>(value);
        }
    }

    static const char* compilation_directory(Dwarf_Die* unit) {
        Dwarf_Attribute attribute;
        return dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
    }

    Dwfl* dwfl_ = nullptr;
    Dwfl_Module* module_ = nullptr;    ///< null when the file is missing or not the one that ran
    Dwarf_Addr bias_ = 0;              ///< load bias chosen by libdwfl
    Dwarf_Addr dwarf_bias_ = 0;        ///< likewise, of the file with the debug information
    std::optional<CodeRanges> units_;  ///< none until the first address is looked up
    std::unordered_map<void*, CodeRanges> functions_;            ///< by their unit
    std::vector<std::pair<std::uint64_t, std::uint64_t>> code_;  ///< address and size
    std::string problem_;
    std::unordered_map<std::uint64_t, ResolvedAddress> resolved_;
};

}  // namespace

class Symbolizer::Impl {
  public:
    const ResolvedAddress& resolve(const std::string& path, const std::string& build_id,
                                   std::uint64_t return_address) {
        auto& module = modules_[{path, build_id}];
        if (!module) {
            module = std::make_unique<SymbolModule>(path, build_id);
        }
        return module->resolve(return_address);
    }

  private:
    std::map<std::pair<std::string, std::string>, std::unique_ptr<SymbolModule>> modules_;
};

Symbolizer::Symbolizer() : impl_(std::make_unique<Impl>()) {
    hide_debuginfod_from_libdw();
}

Symbolizer::~Symbolizer() = default;

const ResolvedAddress& Symbolizer::resolve(const std::string& path, const std::string& build_id,
                                           std::uint64_t return_address) {
    return impl_->resolve(path, build_id, return_address);
}

}  // namespace memlab::report
