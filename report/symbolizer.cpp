#include "report/symbolizer.hpp"

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
#include <map>
#include <unordered_map>
#include <utility>

#include "report/debuginfod.hpp"

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

/// "(anonymous namespace)::Trainer::" for what lies in there.
std::string qualifier_of(Dwarf_Die die) {
    std::string qualifier;
    Dwarf_Die declaration = declaration_of(die);
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes_die(&declaration, &scopes);
    for (int i = 1; i < count; ++i) {
        const int tag = dwarf_tag(&scopes[i]);
        const bool is_namespace = tag == DW_TAG_namespace;
        if (!is_namespace && tag != DW_TAG_class_type && tag != DW_TAG_structure_type &&
            tag != DW_TAG_union_type) {
            break;
        }
        const char* name = dwarf_diename(&scopes[i]);
        const char* anonymous = is_namespace ? "(anonymous namespace)" : "{unnamed}";
        qualifier.insert(0, std::string(name == nullptr ? anonymous : name) + "::");
    }
    std::free(scopes);
    return qualifier;
}

/// The name of a function's or inlined function's DIE, demangled.
std::string die_name(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    Dwarf_Attribute* linkage = dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute);
    if (linkage == nullptr) {
        linkage = dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute);
    }
    const char* mangled = linkage == nullptr ? nullptr : dwarf_formstring(linkage);
    if (mangled != nullptr) {
        return demangle(mangled);
    }
    // Compilers leave the linkage name out where a function has no linkage.
    const char* name = dwarf_diename(die);
    return name == nullptr ? std::string() : qualifier_of(*die) + name;
}

/// One binary, opened at most once.
class Module {
  public:
    Module(const std::string& path, const std::string& build_id) { open(path, build_id); }

    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;
    ~Module() {
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

    /// Frames by DWARF: the innermost line from the line table, each caller's from the call site of
    /// what is inlined into it.
    void add_debug_frames(Dwarf_Addr pc, ResolvedAddress& out) {
        Dwarf_Addr dwarf_bias = 0;
        Dwarf_Die* unit = dwfl_module_addrdie(module_, pc, &dwarf_bias);
        if (unit == nullptr) {
            return;
        }
        SourceFrame frame;
        set_line(unit, pc, frame);

        const char* directory = compilation_directory(unit);  // which a split unit has not
        Dwarf_Die split;
        unit = unit_with_scopes(unit, &split);
        Dwarf_Die* at = nullptr;
        const int at_count = dwarf_getscopes(unit, pc - dwarf_bias, &at);
        if (at_count <= 0) {
            std::free(at);
            add_symbol_frame(pc, std::move(frame), out);
            return;
        }
        Dwarf_Die innermost = at[0];
        std::free(at);
        // getscopes leaves the way of inlining at the first inlined function and follows its
        // definition instead; getscopes_die walks out through the code itself.
        Dwarf_Die* scopes = nullptr;
        const int count = dwarf_getscopes_die(&innermost, &scopes);
        Dwarf_Files* files = nullptr;
        std::size_t file_count = 0;
        if (dwarf_getsrcfiles(unit, &files, &file_count) != 0) {
            files = nullptr;
        }
        const std::unique_ptr<Dwarf_Die, decltype(&std::free)> owner(scopes, &std::free);
        for (int i = 0; i < count; ++i) {
            const int tag = dwarf_tag(&scopes[i]);
            if (tag == DW_TAG_inlined_subroutine) {
                frame.function = die_name(&scopes[i]);
                frame.inlined = true;
                out.frames.push_back(std::move(frame));
                frame = SourceFrame();
                set_call_line(&scopes[i], directory, files, frame);
            } else if (tag == DW_TAG_subprogram) {
                frame.function = die_name(&scopes[i]);
                break;
            }
        }
        if (frame.function.empty()) {
            add_symbol_frame(pc, std::move(frame), out);
        } else {
            out.frames.push_back(std::move(frame));
        }
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

    void add_symbol_frame(Dwarf_Addr pc, SourceFrame frame, ResolvedAddress& out) {
        GElf_Off offset = 0;
        GElf_Sym symbol;
        const char* name =
            dwfl_module_addrinfo(module_, pc, &offset, &symbol, nullptr, nullptr, nullptr);
        // Only functions: what lies before the first one or in a gap is nobody's.
        const bool is_function =
            name != nullptr && (GELF_ST_TYPE(symbol.st_info) == STT_FUNC ||
                                GELF_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC ||
                                GELF_ST_TYPE(symbol.st_info) == STT_NOTYPE);
        if (is_function && (symbol.st_size == 0 || offset < symbol.st_size)) {
            frame.function = demangle(name);
        }
        if (!frame.function.empty() || !frame.file.empty()) {
            out.frames.push_back(std::move(frame));
        }
    }

    void set_line(Dwarf_Die* unit, Dwarf_Addr pc, SourceFrame& frame) {
        Dwfl_Line* line = dwfl_module_getsrc(module_, pc);
        if (line == nullptr) {
            return;
        }
        int number = 0;
        const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
        const char* directory = dwfl_line_comp_dir(line);
        if (directory == nullptr) {
            directory = compilation_directory(unit);
        }
        frame.file = absolute_file(file, directory);
        frame.line = number;
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
    Dwfl_Module* module_ = nullptr;  ///< null when the file is missing or not the one that ran
    Dwarf_Addr bias_ = 0;            ///< of libdwfl's own placing
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
            module = std::make_unique<Module>(path, build_id);
        }
        return module->resolve(return_address);
    }

  private:
    std::map<std::pair<std::string, std::string>, std::unique_ptr<Module>> modules_;
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

std::string short_function_name(const std::string& declaration) {
    std::string name = declaration;
    const std::size_t clone = name.find(" [clone");
    if (clone != std::string::npos) {
        name.resize(clone);
    }
    const std::size_t suffix = name.find_first_of(".@");  // "f.part.0", "f@@GLIBC_2.34"
    if (suffix != std::string::npos && suffix != 0 && name.find('(') == std::string::npos) {
        name.resize(suffix);
    }
    // The parameters are the first parenthesis outside template arguments that is not part of a
    // name: "(anonymous namespace)", "operator()".
    int depth = 0;
    std::size_t name_begin = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const bool after_operator = i >= 8 && name.compare(i - 8, 8, "operator") == 0;
        if (after_operator) {
            // operator(), operator<, operator<<, operator->: not brackets.
            if (name.compare(i, 2, "()") == 0) {
                ++i;
                continue;
            }
            const std::size_t after = name.find_first_not_of("<>=-", i);
            if (after != i && after != std::string::npos) {
                i = after - 1;
                continue;
            }
        }
        static constexpr const char anonymous[] = "(anonymous namespace)";
        if (name.compare(i, sizeof anonymous - 1, anonymous) == 0) {
            i += sizeof anonymous - 2;
            continue;
        }
        if (name.compare(i, 8, "{lambda(") == 0) {
            const std::size_t close = name.find('}', i);
            if (close != std::string::npos) {
                i = close;
                continue;
            }
        }
        const char c = name[i];
        if (c == '<') {
            ++depth;
        } else if (c == '>') {
            --depth;
        } else if (c == ' ' && depth == 0) {
            const bool conversion = i >= 8 && name.compare(i - 8, 8, "operator") == 0;
            name_begin = conversion ? name_begin : i + 1;  // what precedes is the return type
        } else if (c == '(' && depth == 0 && i > name_begin) {
            return name.substr(name_begin, i - name_begin);
        }
    }
    return name.substr(name_begin);
}

}  // namespace memlab::report
