#include "report/text/names.hpp"

#include <cxxabi.h>

#include <array>
#include <cstdlib>
#include <vector>

namespace memlab::report {

namespace {

constexpr std::size_t npos = std::string_view::npos;

bool is_identifier(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || static_cast<unsigned char>(c) >= 128;
}

bool has_at(std::string_view text, std::size_t at, std::string_view part) {
    return at <= text.size() && text.substr(at).starts_with(part);
}

/// "operator" as a word of its own.
bool is_operator_at(std::string_view text, std::size_t at) {
    constexpr std::string_view word = "operator";
    return has_at(text, at, word) && (at == 0 || !is_identifier(text[at - 1])) &&
           (at + word.size() == text.size() || !is_identifier(text[at + word.size()]));
}

/// The position after "operator" at `at` and its symbol: "operator()", "operator<=>",
/// "operator->*". After the word alone if no symbol follows (conversion, new, delete, co_await,
/// literal).
std::size_t skip_operator(std::string_view text, std::size_t at) {
    at += std::string_view("operator").size();
    // Symbols before their prefixes.
    static constexpr std::array<std::string_view, 39> symbols = {
        "<=>", "<<=", ">>=", "->*", "()", "[]", "<<", ">>", "<=", ">=", "->", "==", "!=",
        "&&",  "||",  "++",  "--",  "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<",
        ">",   "+",   "-",   "*",   "/",  "%",  "^",  "&",  "|",  "~",  "!",  "=",  ","};
    for (const std::string_view symbol : symbols) {
        if (has_at(text, at, symbol)) {
            at += symbol.size();
            // "operator<< <char>": the demangler separates the brackets by a blank.
            return has_at(text, at, " <") ? at + 1 : at;
        }
    }
    return at;
}

/// Matches the brackets of a declaration. Linear in its length for any text, since names from a
/// recording are not trusted.
class Tokens {
  public:
    explicit Tokens(std::string_view text) : text_(text), ends_(text.size(), npos) {
        pair('(', ')');
        pair('{', '}');
        pair('[', ']');
        pair_templates();
    }

    std::string_view text() const { return text_; }

    /// The position after the character, bracketed text or operator name that begins at `at`. An
    /// unmatched bracket is an ordinary character.
    std::size_t skip(std::size_t at) const {
        if (ends_[at] != npos) {
            return ends_[at];
        }
        return is_operator_at(text_, at) ? skip_operator(text_, at) : at + 1;
    }
    bool is_bracket(std::size_t at) const { return ends_[at] != npos; }

  private:
    /// Matches one kind of bracket and ignores the others: "(a < b)", "{lambda(int)#1}".
    void pair(char open, char close) {
        std::vector<std::size_t> open_brackets;
        for (std::size_t i = 0; i < text_.size(); ++i) {
            if (text_[i] == open) {
                open_brackets.push_back(i);
            } else if (text_[i] == close && !open_brackets.empty()) {
                ends_[open_brackets.back()] = i + 1;
                open_brackets.pop_back();
            }
        }
    }

    /// Matches "<...>" outside of other brackets. Operands of comparisons and shifts within
    /// template arguments are parenthesized: "(sizeof (int))<(8)".
    void pair_templates() {
        std::vector<std::size_t> open_brackets;
        for (std::size_t i = 0; i < text_.size();) {
            const bool after_value =
                i > 0 && text_[i - 1] == ')' && !text_.substr(0, i).ends_with("operator()");
            const std::size_t compared =
                after_value && text_[i] == '<' ? text_.find_first_not_of("<>=", i) : npos;
            if (has_at(text_, compared, "(")) {
                i = compared;
            } else if (has_at(text_, i, "->") ||
                       (after_value && (has_at(text_, i, ">=(") || has_at(text_, i, ">>(")))) {
                i += 2;
            } else if (text_[i] == '<') {
                open_brackets.push_back(i++);
            } else if (text_[i] == '>' && !open_brackets.empty()) {
                ends_[open_brackets.back()] = ++i;
                open_brackets.pop_back();
            } else {
                i = skip(i);
            }
        }
    }

    std::string_view text_;
    std::vector<std::size_t> ends_;
};

/// The position after qualifiers that follow parameters: " const", " volatile", " &", " noexcept".
std::size_t skip_qualifiers(std::string_view text, std::size_t at) {
    for (bool more = true; more;) {
        more = false;
        for (const std::string_view word : {" const", " volatile", " &&", " &", " noexcept"}) {
            if (has_at(text, at, word)) {
                at += word.size();
                more = true;
            }
        }
    }
    return at;
}

/// The position after the target type at `at` of a conversion function, where its parameters begin:
/// "operator int*()", "operator void (*)(int)()".
std::size_t skip_conversion_type(const Tokens& tokens, std::size_t at) {
    const std::string_view text = tokens.text();
    while (at < text.size()) {
        bool is_pointer = false;
        if (text[at] == '(') {
            const std::string_view before = text.substr(0, at);
            is_pointer = has_at(text, at, "(*") || has_at(text, at, "(&");
            if (!is_pointer && !before.ends_with("decltype") && !before.ends_with("decltype ")) {
                return at;
            }
        }
        at = tokens.skip(at);
        if (is_pointer && has_at(text, at, "(")) {
            at = tokens.skip(at);
        }
    }
    return at;
}

/// "name(int)" of "(*name(int))", a function that returns a pointer to a function or an array;
/// empty for other brackets.
std::string_view declarator_in(std::string_view bracket) {
    const std::string_view inner = bracket.substr(1, bracket.size() - 2);
    std::size_t at = 0;
    while (at < inner.size() && (is_identifier(inner[at]) || inner[at] == ':')) {
        ++at;  // "(Class::*name...": pointer to member
    }
    if (at == inner.size() || (inner[at] != '*' && inner[at] != '&')) {
        return {};
    }
    at = inner.find_first_not_of("*& ", at);
    return at == npos ? std::string_view() : inner.substr(at);
}

/// The name of a function declaration; empty if none is found. If the name is in a bracket, `inner`
/// is set to the text in it.
std::string declared_name(const Tokens& tokens, std::string_view* inner) {
    const std::string_view text = tokens.text();
    std::string name;  // the current word
    for (std::size_t i = 0; i < text.size();) {
        const bool is_type = name == "decltype" || name == "noexcept" || name == "typeof";
        if (text[i] == ' ') {
            if (is_type && has_at(text, i + 1, "(")) {
                i = tokens.skip(i + 1);
                continue;
            }
            name.clear();  // what precedes is the return type
            ++i;
            continue;
        }
        std::size_t end = tokens.skip(i);
        if (is_operator_at(text, i)) {
            const bool has_symbol = end != i + std::string_view("operator").size();
            end = has_symbol ? end : skip_conversion_type(tokens, end);
        } else if (text[i] == '(' && tokens.is_bracket(i) && !is_type &&
                   !has_at(text, i, "(anonymous ")) {
            if (name.empty()) {
                *inner = declarator_in(text.substr(i, end - i));
                return {};
            }
            // Parameters, unless "::" follows, as in names local to a function:
            // "f(int)::Local::run".
            const std::size_t after = skip_qualifiers(text, end);
            if (!has_at(text, after, "::")) {
                return name;
            }
            i = after;
            continue;
        }
        name += text.substr(i, end - i);
        i = end;
    }
    return {};
}

}  // namespace

std::string short_function_name(std::string_view declaration) {
    // A node of PyTorch's backward graph is known by its class: grad_fn=<MulBackward0>.
    constexpr std::string_view nodes = "torch::autograd::generated::";
    if (declaration.starts_with(nodes)) {
        const std::string_view node =
            declaration.substr(nodes.size(), declaration.find("::apply(") - nodes.size());
        if (node.find(':') == npos && nodes.size() + node.size() < declaration.size()) {
            return std::string(node);
        }
    }
    const std::string_view text = declaration.substr(0, declaration.find(" [clone"));
    if (text.find('(') == npos) {
        const std::size_t suffix = text.find_first_of(".@");  // "f.part.0", "f@@GLIBC_2.34"
        return std::string(suffix == 0 ? text : text.substr(0, suffix));
    }
    std::string_view left =
        text.find(".(") == npos ? text : std::string_view();  // "main.(*T).run" is Go's
    constexpr int max_depth = 8;                              // of functions that return functions
    for (int i = 0; i < max_depth && !left.empty(); ++i) {
        std::string_view inner;
        if (std::string name = declared_name(Tokens(left), &inner); !name.empty()) {
            return name;
        }
        left = inner;
    }
    return std::string(text);
}

std::string bare_function_name(std::string_view declaration) {
    std::string name = short_function_name(declaration);
    if (name.find_first_of("<{") == npos) {
        return name;
    }
    const std::string_view text = name;
    const Tokens tokens(text);
    std::string bare;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = tokens.skip(i);
        if (text[i] == '{' && tokens.is_bracket(i)) {
            const std::string_view inner = text.substr(i + 1, end - i - 2);
            bare.append("{").append(inner.substr(0, inner.find_first_of("(#"))).append("}");
        } else if (text[i] == '<' && !tokens.is_bracket(i)) {
            return name;
        } else if (text[i] != '<') {
            bare += text.substr(i, end - i);
        }
        i = end;
    }
    return bare.substr(0, bare.find_last_not_of(' ') + 1);  // "operator< <int>"
}

std::string without_anonymous(std::string name) {
    static constexpr std::string_view anonymous = "(anonymous namespace)::";
    for (std::size_t at = name.find(anonymous); at != std::string::npos;
         at = name.find(anonymous, at)) {
        name.erase(at, anonymous.size());
    }
    return name;
}

std::string collapse_templates(std::string_view name, bool ascii) {
    const Tokens tokens(name);
    std::string result;
    for (std::size_t i = 0; i < name.size();) {
        const std::size_t end = tokens.skip(i);
        const bool opens = name[i] == '<';
        if (name[i] == '>' || (opens && !tokens.is_bracket(i))) {
            return std::string(name);
        }
        // Arguments follow a name; "<module>" and what follows "<locals>." are names.
        if (opens && i > 0 && name[i - 1] != '.' && name[i - 1] != ':') {
            result += ascii ? "<...>" : "<…>";
        } else {
            result += name.substr(i, end - i);
        }
        i = end;
    }
    return result;
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
