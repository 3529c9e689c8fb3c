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

/// Wraps libdw's search, which includes the servers if allowed. Reports the servers' negative
/// errno, which libdw ignores, and verifies the build id of downloaded files, which libdw does not.
int find_debuginfo(Dwfl_Module* module, void** userdata, const char* name, Dwarf_Addr base,
                   const char* file, const char* link, GElf_Word checksum, char** found) {
    const int result =
        dwfl_standard_find_debuginfo(module, userdata, name, base, file, link, checksum, found);
    const std::string build_id = debuginfod_allowed() ? read_build_id(module) : std::string();
    if (build_id.empty()) {
        return result;
    }
    if (result < 0) {
        debuginfod_failed(build_id, -result);
        return result;
    }
    // A second file is one that several modules share (dwz), with another build id.
    const bool is_own = *userdata == nullptr;
    const bool is_downloaded = *found == nullptr;
    if (is_own && is_downloaded && read_build_id(result) != build_id) {
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
/// relative, too, both were rewritten for reproducible builds (-ffile-prefix-map) independently, so
/// the name alone is used.
std::string absolute_file(const char* file, const char* directory) {
    if (file == nullptr) {
        return {};
    }
    if (file[0] == '/' || directory == nullptr || directory[0] != '/') {
        return file;
    }
    return std::string(directory) + "/" + file;
}

/// The declaration of which `die` is an instance or definition. Unlike `die`, it is inside its
/// namespace and class.
Dwarf_Die find_declaration(Dwarf_Die die) {
    Dwarf_Attribute attribute;
    Dwarf_Die next;
    // Bounded: damaged debug information may have cycles.
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

/// The qualifier of a DIE: "(anonymous namespace)::Trainer::", "main::{lambda}::".
std::string make_qualifier(Dwarf_Die die) {
    std::string qualifier;
    Dwarf_Die declaration = find_declaration(die);
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
                Dwarf_Die function = find_declaration(scopes[i]);
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

/// The demangled linkage name of a function; empty where its DIE has none.
std::string linkage_name(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    Dwarf_Attribute* linkage = dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute);
    if (linkage == nullptr) {
        linkage = dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute);
    }
    const char* mangled = linkage == nullptr ? nullptr : dwarf_formstring(linkage);
    return mangled == nullptr ? std::string() : demangle(mangled);
}

/// The qualified source name of a function: those without linkage have no linkage name.
std::string source_name(Dwarf_Die* die) {
    const char* name = dwarf_diename(die);
    return name == nullptr ? std::string() : make_qualifier(*die) + name;
}

/// A map from code addresses to DIEs.
class CodeRanges {
  public:
    /// `in_code(begin, end)`: whether the program has code there. Functions that the linker
    /// discarded still have debug information, at addresses such as 0.
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

    /// Null where no DIE has code at `pc`.
    Dwarf_Die* find(Dwarf_Addr pc) {
        auto after =
            std::upper_bound(ranges_.begin(), ranges_.end(), pc,
                             [](Dwarf_Addr at, const Range& range) { return at < range.begin; });
        // Ranges overlap only where the linker has folded identical functions.
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

/// Adds all functions with their own code, wherever they are declared.
template <typename InCode>
void add_functions(Dwarf_Die parent, const InCode& in_code, CodeRanges& functions) {
    // Iterative: damaged debug information may nest arbitrarily deep.
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

/// The functions inlined into `function` at `pc`, outermost first.
std::vector<Dwarf_Die> inlined_at(Dwarf_Die function, Dwarf_Addr pc) {
    std::vector<Dwarf_Die> inlined;
    Dwarf_Die die;
    constexpr int max_depth = 1000;
    for (int depth = 0; depth < max_depth && dwarf_child(&function, &die) == 0; ++depth) {
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
            add_symbol_frame(pc, SourceFrame(), out);
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
        SourceFrame frame;
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
            frame = SourceFrame();
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

    void add_symbol_frame(Dwarf_Addr pc, SourceFrame frame, ResolvedAddress& out) {
        frame.function = demangle(symbol_name(pc).c_str());
        if (!frame.function.empty() || frame.line > 0) {
            out.frames.push_back(std::move(frame));
        }
    }

    /// Takes the row of the line table that covers `pc`: the last one at or before it, unless that
    /// ends a sequence.
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
    if (!debuginfod_allowed()) {
        unsetenv("DEBUGINFOD_URLS");  // the only source of servers for libdwfl
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
