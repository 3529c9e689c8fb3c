#include "report/symbols/dwarf_functions.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "report/text/names.hpp"

namespace memlab::report {

namespace {

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

}  // namespace

std::string absolute_file(const char* file, const char* directory) {
    if (file == nullptr) {
        return {};
    }
    // Compilers spell one file in several ways ("a/../b.h"): a place is known by its file's name.
    const bool known = file[0] == '/' || directory == nullptr || directory[0] != '/';
    const std::string path = known ? std::string(file) : std::string(directory) + "/" + file;
    return std::filesystem::path(path).lexically_normal().string();
}

std::string linkage_name(Dwarf_Die* die) {
    Dwarf_Attribute attribute;
    Dwarf_Attribute* linkage = dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute);
    if (linkage == nullptr) {
        linkage = dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute);
    }
    const char* mangled = linkage == nullptr ? nullptr : dwarf_formstring(linkage);
    return mangled == nullptr ? std::string() : demangle(mangled);
}

std::string source_name(Dwarf_Die* die) {
    const char* name = dwarf_diename(die);
    return name == nullptr ? std::string() : make_qualifier(*die) + name;
}

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

}  // namespace memlab::report
