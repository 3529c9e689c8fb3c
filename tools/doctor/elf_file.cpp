#include "tools/doctor/elf_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

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
    std::unique_ptr<ElfFile> file;
    struct stat status {};
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_size >= static_cast<off_t>(sizeof(Elf64_Ehdr))) {
        const auto size = static_cast<std::size_t>(status.st_size);
        void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            file.reset(new ElfFile);
            file->data_ = static_cast<const std::byte*>(data);
            file->size_ = size;
        }
    }
    close(fd);
    return file != nullptr && file->read_headers() ? std::move(file) : nullptr;
}

ElfFile::~ElfFile() {
    if (data_ != nullptr) {
        munmap(const_cast<std::byte*>(data_), size_);
    }
}

std::span<const std::byte> ElfFile::part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > size_ || size > size_ - offset) {
        return {};
    }
    return {data_ + offset, static_cast<std::size_t>(size)};
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

template <class Entry>
std::vector<Entry> ElfFile::entries(const Elf64_Shdr& section) const {
    const std::span<const std::byte> bytes = part(section.sh_offset, section.sh_size);
    std::vector<Entry> found(bytes.size() / sizeof(Entry));
    if (!found.empty()) {
        std::memcpy(found.data(), bytes.data(), found.size() * sizeof(Entry));
    }
    return found;
}

bool ElfFile::read_headers() {
    const auto header = load<Elf64_Ehdr>(data_);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return false;
    }
    machine_ = header.e_machine;
    is_64_bit_ = header.e_ident[EI_CLASS] == ELFCLASS64;
    x86_64_ = is_64_bit_ && machine_ == EM_X86_64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
    if (!x86_64_) {
        return true;
    }
    const auto table = [this](auto* into, std::uint64_t offset, std::size_t count) {
        using Entry = typename std::remove_pointer_t<decltype(into)>::value_type;
        const auto bytes = part(offset, count * sizeof(Entry));
        into->resize(bytes.size() / sizeof(Entry));
        if (!bytes.empty()) {
            std::memcpy(into->data(), bytes.data(), bytes.size());
        }
    };
    if (header.e_phentsize == sizeof(Elf64_Phdr)) {
        table(&segments_, header.e_phoff, header.e_phnum);
    }
    if (header.e_shentsize == sizeof(Elf64_Shdr)) {
        table(&sections_, header.e_shoff, header.e_shnum);
    }
    for (const Elf64_Phdr& segment : segments_) {
        if (segment.p_type == PT_INTERP) {
            interpreter_ = text(part(segment.p_offset, segment.p_filesz), 0);
        } else if (segment.p_type == PT_DYNAMIC) {
            read_dynamic(segment);
        }
    }
    return true;
}

void ElfFile::read_dynamic(const Elf64_Phdr& segment) {
    const auto bytes = part(segment.p_offset, segment.p_filesz);
    std::vector<std::uint64_t> names;
    std::uint64_t strings = 0;
    std::uint64_t strings_bytes = 0;
    for (std::size_t at = 0; at + sizeof(Elf64_Dyn) <= bytes.size(); at += sizeof(Elf64_Dyn)) {
        const auto entry = load<Elf64_Dyn>(&bytes[at]);
        if (entry.d_tag == DT_NULL) {
            break;
        }
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

std::optional<Elf64_Shdr> ElfFile::section_of(std::uint32_t type) const {
    for (const Elf64_Shdr& section : sections_) {
        if (section.sh_type == type) {
            return section;
        }
    }
    return std::nullopt;
}

/// Calls visit(name) for each version in a section of that type, whose records are chained.
template <class Header, class Visit>
void ElfFile::each_version(std::uint32_t type, const Visit& visit) const {
    const auto section = section_of(type);
    if (!section || section->sh_link >= sections_.size()) {
        return;
    }
    const auto bytes = part(section->sh_offset, section->sh_size);
    const Elf64_Shdr& link = sections_[section->sh_link];
    const auto strings = part(link.sh_offset, link.sh_size);
    std::uint64_t at = 0;
    for (std::size_t guard = 0; guard < bytes.size() && at + sizeof(Header) <= bytes.size();
         ++guard) {
        const auto header = load<Header>(&bytes[at]);
        std::uint64_t next = 0;
        if constexpr (std::is_same_v<Header, Elf64_Verneed>) {
            std::uint64_t inner = at + header.vn_aux;
            for (unsigned i = 0; i < header.vn_cnt && inner + sizeof(Elf64_Vernaux) <= bytes.size();
                 ++i) {
                const auto version = load<Elf64_Vernaux>(&bytes[inner]);
                visit(text(strings, version.vna_name));
                inner += version.vna_next;
            }
            next = header.vn_next;
        } else {
            const std::uint64_t inner = at + header.vd_aux;
            if (inner + sizeof(Elf64_Verdaux) <= bytes.size()) {
                visit(text(strings, load<Elf64_Verdaux>(&bytes[inner]).vda_name));
            }
            next = header.vd_next;
        }
        if (next == 0) {
            break;
        }
        at += next;
    }
}

std::vector<int> ElfFile::highest_needed(std::string_view prefix) const {
    std::vector<int> highest;
    each_version<Elf64_Verneed>(SHT_GNU_verneed, [&](std::string_view name) {
        if (name.starts_with(prefix)) {
            highest = std::max(highest, parse_version(name.substr(prefix.size())));
        }
    });
    return highest;
}

std::vector<int> ElfFile::highest_defined(std::string_view prefix) const {
    std::vector<int> highest;
    each_version<Elf64_Verdef>(SHT_GNU_verdef, [&](std::string_view name) {
        if (name.starts_with(prefix)) {
            highest = std::max(highest, parse_version(name.substr(prefix.size())));
        }
    });
    return highest;
}

std::optional<Elf64_Sym> ElfFile::find_symbol(std::string_view name, bool defined) const {
    const auto section = section_of(SHT_DYNSYM);
    if (!section || section->sh_link >= sections_.size()) {
        return std::nullopt;
    }
    const Elf64_Shdr& link = sections_[section->sh_link];
    const auto strings = part(link.sh_offset, link.sh_size);
    const auto bytes = part(section->sh_offset, section->sh_size);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= bytes.size(); at += sizeof(Elf64_Sym)) {
        const auto symbol = load<Elf64_Sym>(&bytes[at]);
        if ((symbol.st_shndx != SHN_UNDEF) == defined && text(strings, symbol.st_name) == name) {
            return symbol;
        }
    }
    return std::nullopt;
}

bool ElfFile::imports(std::string_view symbol) const {
    return find_symbol(symbol, false).has_value();
}

bool ElfFile::exports(std::string_view symbol) const {
    return find_symbol(symbol, true).has_value();
}

std::span<const std::byte> ElfFile::contents(std::string_view name, std::size_t bytes) const {
    const auto symbol = find_symbol(name, true);
    return symbol ? at_address(symbol->st_value, bytes) : std::span<const std::byte>{};
}

/// Addresses of the words through which a function is called that the loader finds.
std::vector<std::uint64_t> ElfFile::slots_of(std::string_view import) const {
    std::vector<std::uint64_t> slots;
    const auto section = section_of(SHT_DYNSYM);
    if (!section || section->sh_link >= sections_.size()) {
        return slots;
    }
    const Elf64_Shdr& link = sections_[section->sh_link];
    const auto strings = part(link.sh_offset, link.sh_size);
    const auto symbols = part(section->sh_offset, section->sh_size);
    for (const Elf64_Shdr& relocations : sections_) {
        if (relocations.sh_type != SHT_RELA) {
            continue;
        }
        for (const auto& relocation : entries<Elf64_Rela>(relocations)) {
            const std::uint64_t at = ELF64_R_SYM(relocation.r_info) * sizeof(Elf64_Sym);
            const std::uint64_t type = ELF64_R_TYPE(relocation.r_info);
            if ((type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT) && at != 0 &&
                at + sizeof(Elf64_Sym) <= symbols.size() &&
                text(strings, load<Elf64_Sym>(&symbols[at]).st_name) == import) {
                slots.push_back(relocation.r_offset);
            }
        }
    }
    return slots;
}

bool ElfFile::opens_deep_bound() const {
    if (!imports("dlopen")) {
        return false;
    }
    const std::vector<std::uint64_t> slots = slots_of("dlopen");
    if (slots.empty()) {
        return false;
    }
    // Stubs of the PLT: an indirect jump, with a prefix and a landing pad or without.
    std::set<std::uint64_t> stubs;
    const auto each_code = [this](const auto& visit) {
        for (const Elf64_Shdr& section : sections_) {
            if ((section.sh_flags & SHF_EXECINSTR) != 0 && section.sh_type == SHT_PROGBITS) {
                visit(part(section.sh_offset, section.sh_size), section.sh_addr);
            }
        }
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
                for (const std::uint64_t before : {0, 1, 4, 5}) {
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
