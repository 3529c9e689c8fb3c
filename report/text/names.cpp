#include "report/text/names.hpp"

#include <array>
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

/// Behind "operator" and its symbol: "operator()", "operator<=>", "operator->*"; `at` behind the
/// word alone where none follows, which is a conversion, new, delete, co_await or a literal.
std::size_t behind_operator(std::string_view text, std::size_t at) {
    at += std::string_view("operator").size();
    // Longer ones first.
    static constexpr std::array<std::string_view, 39> symbols = {
        "<=>", "<<=", ">>=", "->*", "()", "[]", "<<", ">>", "<=", ">=", "->", "==", "!=",
        "&&",  "||",  "++",  "--",  "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<",
        ">",   "+",   "-",   "*",   "/",  "%",  "^",  "&",  "|",  "~",  "!",  "=",  ","};
    for (const std::string_view symbol : symbols) {
        if (has_at(text, at, symbol)) {
            at += symbol.size();
            // "operator<< <char>": the demangler keeps the brackets apart.
            return has_at(text, at, " <") ? at + 1 : at;
        }
    }
    return at;
}

/// What belongs together in a declaration. Made in one pass over it, whatever it holds: a recording
/// may bring any text.
class Elements {
  public:
    explicit Elements(std::string_view text) : text_(text), behind_(text.size(), npos) {
        pair('(', ')');
        pair('{', '}');
        pair('[', ']');
        pair_templates();
    }

    std::string_view text() const { return text_; }

    /// Behind the character at `at`, or behind all of the bracket or operator's name that begins
    /// there. A bracket that nothing closes is a character like others.
    std::size_t behind(std::size_t at) const {
        if (behind_[at] != npos) {
            return behind_[at];
        }
        return is_operator_at(text_, at) ? behind_operator(text_, at) : at + 1;
    }
    bool is_bracket(std::size_t at) const { return behind_[at] != npos; }

  private:
    /// Only brackets of the same sort count, since each of them comes in pairs: "(a < b)",
    /// "{lambda(int)#1}".
    void pair(char open, char close) {
        std::vector<std::size_t> begun;
        for (std::size_t i = 0; i < text_.size(); ++i) {
            if (text_[i] == open) {
                begun.push_back(i);
            } else if (text_[i] == close && !begun.empty()) {
                behind_[begun.back()] = i + 1;
                begun.pop_back();
            }
        }
    }

    /// "<...>" outside of other brackets. Within, what compares and shifts stands between
    /// parentheses: "(sizeof (int))<(8)".
    void pair_templates() {
        std::vector<std::size_t> begun;
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
                begun.push_back(i++);
            } else if (text_[i] == '>' && !begun.empty()) {
                behind_[begun.back()] = ++i;
                begun.pop_back();
            } else {
                i = behind(i);
            }
        }
    }

    std::string_view text_;
    std::vector<std::size_t> behind_;
};

/// Behind "const", "volatile", "&", "&&", "noexcept", each after a blank, which follow parameters.
std::size_t behind_qualifiers(std::string_view text, std::size_t at) {
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

/// Behind the type that a conversion function converts to, which `at` follows: its parameters begin
/// there. "operator int*()", "operator void (*)(int)()".
std::size_t behind_conversion(const Elements& elements, std::size_t at) {
    const std::string_view text = elements.text();
    while (at < text.size()) {
        bool is_pointer = false;
        if (text[at] == '(') {
            const std::string_view before = text.substr(0, at);
            is_pointer = has_at(text, at, "(*") || has_at(text, at, "(&");
            if (!is_pointer && !before.ends_with("decltype") && !before.ends_with("decltype ")) {
                return at;
            }
        }
        at = elements.behind(at);
        if (is_pointer && has_at(text, at, "(")) {
            at = elements.behind(at);
        }
    }
    return at;
}

/// What "(*name(int))" holds, which returns a function or an array; empty for any other bracket.
std::string_view declarator_in(std::string_view bracket) {
    const std::string_view inner = bracket.substr(1, bracket.size() - 2);
    std::size_t at = 0;
    while (at < inner.size() && (is_identifier(inner[at]) || inner[at] == ':')) {
        ++at;  // "(Class::*name...": of a pointer to a member
    }
    if (at == inner.size() || (inner[at] != '*' && inner[at] != '&')) {
        return {};
    }
    at = inner.find_first_not_of("*& ", at);
    return at == npos ? std::string_view() : inner.substr(at);
}

/// Of a declaration that has parameters; empty where it cannot be told. Where the name is within a
/// bracket, `inner` gets what that holds.
std::string declared_name(const Elements& elements, std::string_view* inner) {
    const std::string_view text = elements.text();
    std::string name;  // the word that is being read
    for (std::size_t i = 0; i < text.size();) {
        const bool is_type = name == "decltype" || name == "noexcept" || name == "typeof";
        if (text[i] == ' ') {
            if (is_type && has_at(text, i + 1, "(")) {
                i = elements.behind(i + 1);
                continue;
            }
            name.clear();  // what precedes is the return type
            ++i;
            continue;
        }
        std::size_t behind = elements.behind(i);
        if (is_operator_at(text, i)) {
            const bool has_symbol = behind != i + std::string_view("operator").size();
            behind = has_symbol ? behind : behind_conversion(elements, behind);
        } else if (text[i] == '(' && elements.is_bracket(i) && !is_type &&
                   !has_at(text, i, "(anonymous ")) {
            if (name.empty()) {
                *inner = declarator_in(text.substr(i, behind - i));
                return {};
            }
            // Parameters. What is local to a function has its name in front: "f(int)::Local::run".
            const std::size_t after = behind_qualifiers(text, behind);
            if (!has_at(text, after, "::")) {
                return name;
            }
            i = after;
            continue;
        }
        name += text.substr(i, behind - i);
        i = behind;
    }
    return {};
}

}  // namespace

std::string short_function_name(std::string_view declaration) {
    const std::string_view text = declaration.substr(0, declaration.find(" [clone"));
    if (text.find('(') == npos) {
        const std::size_t suffix = text.find_first_of(".@");  // "f.part.0", "f@@GLIBC_2.34"
        return std::string(suffix == 0 ? text : text.substr(0, suffix));
    }
    std::string_view left =
        text.find(".(") == npos ? text : std::string_view();  // "main.(*T).run" is Go's
    constexpr int deepest = 8;  // no function returns more functions than that
    for (int i = 0; i < deepest && !left.empty(); ++i) {
        std::string_view inner;
        if (std::string name = declared_name(Elements(left), &inner); !name.empty()) {
            return name;
        }
        left = inner;
    }
    return std::string(text);
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
    const Elements elements(name);
    std::string result;
    for (std::size_t i = 0; i < name.size();) {
        const std::size_t behind = elements.behind(i);
        const bool opens = name[i] == '<';
        if (name[i] == '>' || (opens && !elements.is_bracket(i))) {
            return std::string(name);
        }
        // Arguments follow a name; "<module>" and what follows "<locals>." are names.
        if (opens && i > 0 && name[i - 1] != '.' && name[i - 1] != ':') {
            result += ascii ? "<...>" : "<…>";
        } else {
            result += name.substr(i, behind - i);
        }
        i = behind;
    }
    return result;
}

}  // namespace memlab::report
