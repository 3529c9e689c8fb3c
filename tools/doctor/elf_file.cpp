#include "tools/doctor/elf_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace memlab::tools {

namespace {

template <class T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// The flags with which code before a call sets its second argument: the last `mov esi, constant`
/// or `or esi, constant` of the bytes. 0: none is there.
std::uint32_t constant_flags(std::span<const std::byte> before) {
    constexpr std::size_t reach = 48;
    const std::size_t begin = before.size() > reach ? before.size() - reach : 0;
    for (std::size_t at = before.size(); at-- > begin;) {
        if (before[at] == std::byte{0xbe} && at + 5 <= before.size()) {
            const auto flags = load<std::uint32_t>(&before[at + 1]);
            if (flags != 0 && flags < 0x4000) {
                return flags;
            }
        }
        if (before[at] == std::byte{0x83} && at + 3 <= before.size() &&
            before[at + 1] == std::byte{0xce}) {
            return load<std::uint8_t>(&before[at + 2]);
        }
    }
    return 0;
}

/// visit(section, its header)
template <class Visit>
void each_section(Elf* elf, const Visit& visit) {
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) != nullptr) {
            visit(section, header);
        }
    }
}

/// A section whose entries have names. libelf's functions find no entry in one without data.
struct NamedEntries {
    Elf* elf;
    Elf_Data* data = nullptr;
    std::size_t strings = 0;  ///< index of the section with the names

    std::string_view name(std::size_t offset) const {
        const char* const text = elf_strptr(elf, strings, offset);
        return text != nullptr ? text : std::string_view();
    }
};

/// The first section of a type.
NamedEntries entries_of(Elf* elf, std::uint32_t type) {
    NamedEntries found{elf};
    each_section(elf, [&](Elf_Scn* section, const GElf_Shdr& header) {
        if (header.sh_type == type && found.data == nullptr) {
            found.data = elf_getdata(section, nullptr);
            found.strings = header.sh_link;
        }
    });
    return found;
}

/// Where the next record of a chain begins; -1, which libelf refuses: beyond any section.
int next_in_chain(int at, std::uint32_t distance) {
    return distance < static_cast<std::uint32_t>(INT_MAX - at) ? at + static_cast<int>(distance)
                                                               : -1;
}

std::optional<GElf_Sym> find_symbol(Elf* elf, std::string_view name, bool defined) {
    const NamedEntries symbols = entries_of(elf, SHT_DYNSYM);
    GElf_Sym symbol;
    for (int i = 0; gelf_getsym(symbols.data, i, &symbol) != nullptr; ++i) {
        if ((symbol.st_shndx != SHN_UNDEF) == defined && symbols.name(symbol.st_name) == name) {
            return symbol;
        }
    }
    return std::nullopt;
}

/// Addresses of the words through which a function is called that the loader finds.
std::vector<std::uint64_t> slots_of(Elf* elf, std::string_view import) {
    std::vector<std::uint64_t> slots;
    const NamedEntries symbols = entries_of(elf, SHT_DYNSYM);
    each_section(elf, [&](Elf_Scn* section, const GElf_Shdr& header) {
        Elf_Data* const data = header.sh_type == SHT_RELA ? elf_getdata(section, nullptr) : nullptr;
        GElf_Rela relocation;
        for (int i = 0; gelf_getrela(data, i, &relocation) != nullptr; ++i) {
            const auto index = static_cast<int>(ELF64_R_SYM(relocation.r_info));
            const std::uint64_t type = ELF64_R_TYPE(relocation.r_info);
            GElf_Sym symbol;
            if ((type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT) && index != 0 &&
                gelf_getsym(symbols.data, index, &symbol) != nullptr &&
                symbols.name(symbol.st_name) == import) {
                slots.push_back(relocation.r_offset);
            }
        }
    });
    return slots;
}

}  // namespace

std::vector<int> parse_version(std::string_view text) {
    std::vector<int> version;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        int number = 0;
        const auto [next, error] = std::from_chars(at, end, number);
        if (error != std::errc() || number < 0) {
            return {};
        }
        version.push_back(number);
        if (next == end || *next != '.') {
            return next == end ? version : std::vector<int>{};
        }
        at = next + 1;
    }
    return version;
}

std::string version_text(const std::vector<int>& version) {
    std::string text;
    for (const int number : version) {
        text += (text.empty() ? "" : ".") + std::to_string(number);
    }
    return text;
}

std::unique_ptr<ElfFile> ElfFile::open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return nullptr;
    }
    elf_version(EV_CURRENT);
    std::unique_ptr<ElfFile> file(new ElfFile);
    struct stat status {};
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        file->elf_ = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
    }
    const bool is_whole = file->elf_ != nullptr && elf_kind(file->elf_) == ELF_K_ELF &&
                          elf_cntl(file->elf_, ELF_C_FDREAD) == 0;
    close(fd);
    return is_whole && file->read_headers() ? std::move(file) : nullptr;
}

ElfFile::~ElfFile() {
    elf_end(elf_);
}

std::span<const std::byte> ElfFile::part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
        return {};
    }
    return bytes_.subspan(offset, size);
}

std::span<const std::byte> ElfFile::at_address(std::uint64_t address, std::uint64_t size) const {
    for (const Elf64_Phdr& segment : segments_) {
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz) {
            const std::uint64_t into = address - segment.p_vaddr;
            const std::uint64_t offset = segment.p_offset + into;
            return offset < segment.p_offset
                       ? std::span<const std::byte>{}
                       : part(offset, std::min(size, segment.p_filesz - into));
        }
    }
    return {};
}

std::string_view ElfFile::text(std::span<const std::byte> strings, std::uint64_t offset) const {
    if (offset >= strings.size()) {
        return {};
    }
    const auto* const begin = reinterpret_cast<const char*>(strings.data()) + offset;
    return {begin, strnlen(begin, strings.size() - offset)};
}

bool ElfFile::read_headers() {
    GElf_Ehdr header;
    std::size_t size = 0;
    const char* const raw = elf_rawfile(elf_, &size);
    if (raw == nullptr || gelf_getehdr(elf_, &header) == nullptr) {
        return false;
    }
    bytes_ = std::as_bytes(std::span(raw, size));
    machine_ = header.e_machine;
    is_64_bit_ = header.e_ident[EI_CLASS] == ELFCLASS64;
    x86_64_ = is_64_bit_ && machine_ == EM_X86_64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
    if (!x86_64_) {
        return true;
    }
    GElf_Phdr segment;
    for (int i = 0; gelf_getphdr(elf_, i, &segment) != nullptr; ++i) {
        segments_.push_back(segment);
    }
    for (const Elf64_Phdr& each : segments_) {
        if (each.p_type == PT_INTERP) {
            interpreter_ = text(part(each.p_offset, each.p_filesz), 0);
        } else if (each.p_type == PT_DYNAMIC) {
            read_dynamic(each);
        }
    }
    return true;
}

void ElfFile::read_dynamic(const Elf64_Phdr& segment) {
    Elf_Data* const data = elf_getdata_rawchunk(elf_, static_cast<std::int64_t>(segment.p_offset),
                                                segment.p_filesz, ELF_T_DYN);
    std::vector<std::uint64_t> names;
    std::uint64_t strings = 0;
    std::uint64_t strings_bytes = 0;
    GElf_Dyn entry;
    for (int i = 0; gelf_getdyn(data, i, &entry) != nullptr && entry.d_tag != DT_NULL; ++i) {
        if (entry.d_tag == DT_NEEDED) {
            names.push_back(entry.d_un.d_val);
        } else if (entry.d_tag == DT_STRTAB) {
            strings = entry.d_un.d_ptr;
        } else if (entry.d_tag == DT_STRSZ) {
            strings_bytes = entry.d_un.d_val;
        }
    }
    const auto table = at_address(strings, strings_bytes);
    for (const std::uint64_t name : names) {
        needed_.emplace_back(text(table, name));
    }
}

std::string ElfFile::machine() const {
    const std::string bits = is_64_bit_ ? "64-bit " : "32-bit ";
    switch (machine_) {
        case EM_X86_64:
            return is_64_bit_ ? "x86-64" : "x32";
        case EM_386:
            return "32-bit x86";
        case EM_AARCH64:
            return "64-bit ARM";
        case EM_ARM:
            return "32-bit ARM";
        case EM_PPC64:
            return "64-bit POWER";
        default:
            return bits + "machine " + std::to_string(machine_);
    }
}

std::vector<int> ElfFile::highest_needed(std::string_view prefix) const {
    std::vector<int> highest;
    const NamedEntries needs = entries_of(elf_, SHT_GNU_verneed);
    GElf_Verneed need;
    GElf_Vernaux version;
    for (int at = 0; gelf_getverneed(needs.data, at, &need) != nullptr;
         at = need.vn_next != 0 ? next_in_chain(at, need.vn_next) : -1) {
        int inner = next_in_chain(at, need.vn_aux);
        for (unsigned i = 0;
             i < need.vn_cnt && gelf_getvernaux(needs.data, inner, &version) != nullptr; ++i) {
            if (const auto name = needs.name(version.vna_name); name.starts_with(prefix)) {
                highest = std::max(highest, parse_version(name.substr(prefix.size())));
            }
            inner = next_in_chain(inner, version.vna_next);
        }
    }
    return highest;
}

bool ElfFile::imports(std::string_view symbol) const {
    return find_symbol(elf_, symbol, false).has_value();
}

bool ElfFile::exports(std::string_view symbol) const {
    return find_symbol(elf_, symbol, true).has_value();
}

bool ElfFile::calls_through_loader(std::string_view symbol) const {
    return !slots_of(elf_, symbol).empty();
}

std::span<const std::byte> ElfFile::contents(std::string_view name, std::size_t bytes) const {
    const auto symbol = find_symbol(elf_, name, true);
    return symbol ? at_address(symbol->st_value, bytes) : std::span<const std::byte>{};
}

bool ElfFile::opens_deep_bound() const {
    if (!imports("dlopen")) {
        return false;
    }
    const std::vector<std::uint64_t> slots = slots_of(elf_, "dlopen");
    if (slots.empty()) {
        return false;
    }
    // Stubs of the PLT: an indirect jump, with a prefix and a landing pad or without.
    std::set<std::uint64_t> stubs;
    const auto each_code = [this](const auto& visit) {
        each_section(elf_, [&](Elf_Scn* /*section*/, const GElf_Shdr& header) {
            if ((header.sh_flags & SHF_EXECINSTR) != 0 && header.sh_type == SHT_PROGBITS) {
                visit(part(header.sh_offset, header.sh_size), header.sh_addr);
            }
        });
    };
    const auto is_slot = [&slots](std::uint64_t address) {
        return std::find(slots.begin(), slots.end(), address) != slots.end();
    };
    const auto target = [](const std::byte* displacement, std::uint64_t after) {
        return after + static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(displacement)});
    };
    each_code([&](std::span<const std::byte> code, std::uint64_t address) {
        for (std::size_t at = 0; at + 6 <= code.size(); ++at) {
            if (code[at] == std::byte{0xff} && code[at + 1] == std::byte{0x25} &&
                is_slot(target(&code[at + 2], address + at + 6))) {
                for (const std::uint64_t before : {0UL, 1UL, 4UL, 5UL}) {
                    stubs.insert(address + at - before);
                }
            }
        }
    });
    bool found = false;
    each_code([&](std::span<const std::byte> code, std::uint64_t address) {
        for (std::size_t at = 0; at + 6 <= code.size() && !found; ++at) {
            const bool direct = (code[at] == std::byte{0xe8} || code[at] == std::byte{0xe9}) &&
                                stubs.contains(target(&code[at + 1], address + at + 5));
            const bool indirect =
                code[at] == std::byte{0xff} &&
                (code[at + 1] == std::byte{0x15} || code[at + 1] == std::byte{0x25}) &&
                is_slot(target(&code[at + 2], address + at + 6));
            found =
                (direct || indirect) && (constant_flags(code.subspan(0, at)) & RTLD_DEEPBIND) != 0;
        }
    });
    return found;
}

}  // namespace memlab::tools
