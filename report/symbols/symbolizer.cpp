#include "report/symbols/symbolizer.hpp"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "report/symbols/debuginfod.hpp"

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

std::string build_id_of(Dwfl_Module* module) {
    const unsigned char* bits = nullptr;
    GElf_Addr where = 0;
    const int length = dwfl_module_build_id(module, &bits, &where);
    return length > 0 ? to_hex(bits, length) : std::string();
}

/// That of an open file; empty when it has none or is no ELF file.
std::string build_id_of(int file) {
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

/// libdw's own search, which ends at the servers where that is allowed: they are asked by build id,
/// and what they say is the negative errno that libdw makes nothing of. Of a file from a server it
/// checks nothing either.
int find_debuginfo(Dwfl_Module* module, void** userdata, const char* name, Dwarf_Addr base,
                   const char* file, const char* link, GElf_Word checksum, char** found) {
    const int result =
        dwfl_standard_find_debuginfo(module, userdata, name, base, file, link, checksum, found);
    const std::string build_id = debuginfod_allowed() ? build_id_of(module) : std::string();
    if (build_id.empty()) {
        return result;
    }
    if (result < 0) {
        debuginfod_failed(build_id, -result);
        return result;
    }
    // What comes after the module's own file is what several of them share (dwz), with another id.
    const bool is_own = *userdata == nullptr;
    const bool is_downloaded = *found == nullptr;
    if (is_own && is_downloaded && build_id_of(result) != build_id) {
        close(result);
        debuginfod_failed(build_id, EBADMSG);
        return -1;
    }
    *userdata = module;
    return result;
}

const Dwfl_Callbacks dwfl_callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = nullptr,
};

/// A relative name in the line table is relative to the compilation directory. Where that is
/// relative too, both were rewritten for reproducible builds (-ffile-prefix-map), each for itself:
/// the name alone is then the better one.
std::string absolute_file(const char* file, const char* directory) {
    if (file == nullptr) {
        return {};
    }
    if (file[0] == '/' || directory == nullptr || directory[0] != '/') {
        return file;
    }
    return std::string(directory) + "/" + file;
}

/// The DIE that declares what `die` is an instance or definition of: it lies in its namespace and
/// class, where `die` itself may not.
Dwarf_Die declaration_of(Dwarf_Die die) {
    Dwarf_Attribute attribute;
    Dwarf_Die next;
    // A chain longer than this is no compiler's, but a loop.
    for (int i = 0; i < 8; ++i) {
        Dwarf_Attribute* link = dwarf_attr(&die, DW_AT_abstract_origin, &attribute);
        if (link == nullptr) {
            link = dwarf_attr(&die, DW_AT_specification, &attribute);
        }
        if (link == nullptr || dwarf_formref_die(link, &next) == nullptr) {
            break;
        }
        die = next;
    }
    return die;
}

/// "(anonymous namespace)::Trainer::" for what lies in there, "main::{lambda}::" for a lambda's.
std::string qualifier_of(Dwarf_Die die) {
    std::string qualifier;
    Dwarf_Die declaration = declaration_of(die);
    const char* own_name = dwarf_diename(&declaration);
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes_die(&declaration, &scopes);
    for (int i = 1; i < count; ++i) {
        const char* name = dwarf_diename(&scopes[i]);
        switch (dwarf_tag(&scopes[i])) {
            case DW_TAG_namespace:
                name = name == nullptr ? "(anonymous namespace)" : name;
                break;
            case DW_TAG_class_type:
            case DW_TAG_structure_type:
            case DW_TAG_union_type:
                if (name == nullptr) {
                    const bool calls =
                        own_name != nullptr && std::strcmp(own_name, "operator()") == 0;
                    name = calls ? "{lambda}" : "{unnamed}";
                }
                break;
            case DW_TAG_subprogram: {
                Dwarf_Die function = declaration_of(scopes[i]);
                name = dwarf_diename(&function);
                break;
            }
            case DW_TAG_lexical_block:
            case DW_TAG_inlined_subroutine:
                continue;
            default:
                i = count;
                continue;
        }
        if (name != nullptr) {
            qualifier.insert(0, std::string(name) + "::");
        }
    }
    std::free(scopes);
    return qualifier;
}

/// The name that the linker knows a function by, demangled; empty where its DIE does not have it.
std::string linkage_name(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    Dwarf_Attribute* linkage = dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute);
    if (linkage == nullptr) {
        linkage = dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute);
    }
    const char* mangled = linkage == nullptr ? nullptr : dwarf_formstring(linkage);
    return mangled == nullptr ? std::string() : demangle(mangled);
}

/// A function by its source: compilers leave the linkage name out where it has no linkage.
std::string source_name(Dwarf_Die* die) {
    const char* name = dwarf_diename(die);
    return name == nullptr ? std::string() : qualifier_of(*die) + name;
}

/// What of a program's code belongs to which DIE.
class CodeRanges {
  public:
    /// `in_code(begin, end)`: whether the program has code there. What the linker left out has kept
    /// its debug information, at addresses such as 0.
    template <typename InCode>
    void add(Dwarf_Die die, const InCode& in_code) {
        Dwarf_Addr base = 0;
        Dwarf_Addr begin = 0;
        Dwarf_Addr end = 0;
        std::ptrdiff_t next = 0;
        while ((next = dwarf_ranges(&die, next, &base, &begin, &end)) > 0) {
            if (begin < end && in_code(begin, end)) {
                ranges_.push_back({begin, end, end, die});
            }
        }
    }

    /// After the last add(), before find().
    void sort() {
        std::stable_sort(ranges_.begin(), ranges_.end(),
                         [](const Range& a, const Range& b) { return a.begin < b.begin; });
        for (std::size_t i = 1; i < ranges_.size(); ++i) {
            ranges_[i].last_end = std::max(ranges_[i].end, ranges_[i - 1].last_end);
        }
    }

    /// Null where none has code at `pc`.
    Dwarf_Die* find(Dwarf_Addr pc) {
        auto after =
            std::upper_bound(ranges_.begin(), ranges_.end(), pc,
                             [](Dwarf_Addr at, const Range& range) { return at < range.begin; });
        // They overlap only where a linker has folded equal functions into one.
        while (after != ranges_.begin() && std::prev(after)->last_end > pc) {
            --after;
            if (after->end > pc) {
                return &after->die;
            }
        }
        return nullptr;
    }

  private:
    struct Range {
        Dwarf_Addr begin;
        Dwarf_Addr end;
        Dwarf_Addr last_end;  ///< of all ranges up to this one
        Dwarf_Die die;
    };
    std::vector<Range> ranges_;
};

/// The functions that were compiled to code of their own, wherever they are declared.
template <typename InCode>
void add_functions(Dwarf_Die parent, const InCode& in_code, CodeRanges& functions) {
    // Not by recursion: damaged debug information nests as deep as it likes.
    std::vector<Dwarf_Die> parents = {parent};
    while (!parents.empty()) {
        Dwarf_Die die = parents.back();
        parents.pop_back();
        if (dwarf_child(&die, &die) != 0) {
            continue;
        }
        do {
            switch (dwarf_tag(&die)) {
                case DW_TAG_subprogram:
                    functions.add(die, in_code);
                    [[fallthrough]];
                case DW_TAG_namespace:
                case DW_TAG_module:
                case DW_TAG_class_type:
                case DW_TAG_structure_type:
                case DW_TAG_union_type:
                case DW_TAG_lexical_block:
                    parents.push_back(die);
                    break;
                default:
                    break;
            }
        } while (dwarf_siblingof(&die, &die) == 0);
    }
    functions.sort();
}

/// What is inlined at `pc` into `function`, outermost first.
std::vector<Dwarf_Die> inlined_at(Dwarf_Die function, Dwarf_Addr pc) {
    std::vector<Dwarf_Die> inlined;
    Dwarf_Die die;
    constexpr int deepest = 1000;
    for (int depth = 0; depth < deepest && dwarf_child(&function, &die) == 0; ++depth) {
        bool found = false;
        do {
            const int tag = dwarf_tag(&die);
            const bool is_inlined = tag == DW_TAG_inlined_subroutine;
            if ((is_inlined || tag == DW_TAG_lexical_block || tag == DW_TAG_try_block ||
                 tag == DW_TAG_catch_block) &&
                dwarf_haspc(&die, pc) > 0) {
                if (is_inlined) {
                    inlined.push_back(die);
                }
                found = true;
                break;
            }
        } while (dwarf_siblingof(&die, &die) == 0);
        if (!found) {
            break;
        }
        function = die;
    }
    return inlined;
}

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
        // A recording may name anything; opening a pipe or a device would hang.
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
        if (!build_id.empty() && build_id_of(module) != build_id) {
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

    /// Discarded functions keep debug information at address 0: only addresses in code count.
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
        // The call ends where the return address begins; a call that never returns may be the last
        // instruction of its function, so even the function must be looked up one byte before.
        const Dwarf_Addr pc = return_address - 1 + bias_;
        add_debug_frames(pc, out);
        if (out.frames.empty()) {
            add_symbol_frame(pc, SourceFrame(), out);
        }
        if (out.frames.empty()) {
            out.problem = "no symbols";
        }
    }

    /// Whether a range of the debug information's addresses lies in code.
    auto in_code() const {
        return [this](Dwarf_Addr begin, Dwarf_Addr end) {
            const std::uint64_t shift = dwarf_bias_ - bias_;
            return is_code(begin + shift) && is_code(end - 1 + shift);
        };
    }

    /// The unit whose code `pc` is, by what the units themselves say; null where there is none.
    /// (.debug_aranges, which libdw goes by, is left out by clang; and where libdw finds a gap
    /// between two units, it takes the first for the owner of what lies in there.)
    Dwarf_Die* unit_of(Dwarf_Addr pc) {
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

    /// Frames by DWARF: the innermost line from the line table, each caller's from the call site of
    /// what is inlined into it.
    void add_debug_frames(Dwarf_Addr pc, ResolvedAddress& out) {
        Dwarf_Die* unit = unit_of(pc);
        if (unit == nullptr) {
            return;
        }
        const Dwarf_Addr address = pc - dwarf_bias_;
        SourceFrame frame;
        const char* directory = compilation_directory(unit);  // which a split unit has not
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
            frame = SourceFrame();
            set_call_line(&die, directory, files, frame);
        }
        frame.function = linkage_name(function);
        if (frame.function.empty()) {
            frame.function = source_name(function);
            // The linker's name says more of a C++ function: its parameters, and which lambda it
            // is.
            const std::string symbol = symbol_name(pc);
            if (frame.function.empty() || symbol.starts_with("_Z")) {
                frame.function = symbol.empty() ? frame.function : demangle(symbol.c_str());
            }
        }
        out.frames.push_back(std::move(frame));
    }

    /// What -gsplit-dwarf left in the program is a skeleton with the lines; the functions are in a
    /// file of their own (.dwo), where there is one.
    static Dwarf_Die* unit_with_scopes(Dwarf_Die* unit, Dwarf_Die* split) {
        std::uint8_t type = 0;
        const bool found = dwarf_cu_info(unit->cu, nullptr, &type, nullptr, split, nullptr, nullptr,
                                         nullptr) == 0 &&
                           type == DW_UT_skeleton && split->addr != nullptr;
        return found ? split : unit;
    }

    /// That of the function which the symbol table has at `pc`; empty when there is none.
    std::string symbol_name(Dwarf_Addr pc) {
        GElf_Off offset = 0;
        GElf_Sym symbol;
        const char* name =
            dwfl_module_addrinfo(module_, pc, &offset, &symbol, nullptr, nullptr, nullptr);
        // Only functions: what lies before the first one or in a gap is nobody's.
        const bool is_function =
            name != nullptr && (GELF_ST_TYPE(symbol.st_info) == STT_FUNC ||
                                GELF_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC ||
                                GELF_ST_TYPE(symbol.st_info) == STT_NOTYPE);
        return is_function && (symbol.st_size == 0 || offset < symbol.st_size) ? name : "";
    }

    void add_symbol_frame(Dwarf_Addr pc, SourceFrame frame, ResolvedAddress& out) {
        frame.function = demangle(symbol_name(pc).c_str());
        if (!frame.function.empty() || frame.line > 0) {
            out.frames.push_back(std::move(frame));
        }
    }

    /// The row of the line table that covers `pc`: the last one of those at or before it, unless
    /// that is where a sequence ends.
    static void set_line(Dwarf_Die* unit, Dwarf_Addr pc, const char* directory,
                         SourceFrame& frame) {
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
                              SourceFrame& frame) {
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
    Dwarf_Addr bias_ = 0;              ///< of libdwfl's own placing
    Dwarf_Addr dwarf_bias_ = 0;        ///< of the file that has the debug information, the same
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
    if (!debuginfod_allowed()) {
        unsetenv("DEBUGINFOD_URLS");  // libdwfl asks no one else
    }
}

Symbolizer::~Symbolizer() = default;

const ResolvedAddress& Symbolizer::resolve(const std::string& path, const std::string& build_id,
                                           std::uint64_t return_address) {
    return impl_->resolve(path, build_id, return_address);
}

std::string demangle(const char* mangled) {
    // Only C++ names: "i" alone would come out as "int".
    if (mangled[0] != '_' || mangled[1] != 'Z') {
        return mangled;
    }
    int status = 0;
    char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    if (status != 0 || text == nullptr) {
        std::free(text);
        return mangled;
    }
    std::string result = text;
    std::free(text);
    return result;
}

}  // namespace memlab::report
