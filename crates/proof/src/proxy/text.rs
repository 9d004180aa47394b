//! Finds the statement that commits in a text of several, byte by byte, so that no text has to be held.
//!
//! Text in quotes, between dollar marks or in a comment is not a statement. Strings are read as
//! `standard_conforming_strings` has them, which is the default. A commit inside a procedure or a `do` block is not
//! seen.

/// No key word that matters is as long.
const WORD_MAX: usize = 12;

/// How long a mark between two dollars may be; a longer one is not taken for a mark.
const MARK_MAX: usize = 256;

/// Reads a text and says whether it commits.
#[derive(Debug, Default)]
pub struct Finder {
    state: State,
    /// The word under way, in lower case, or the mark between dollars.
    word: Vec<u8>,
    parens: u32,
    statement: Statement,
    statements: u32,
    /// How many statements came before the first one that commits.
    before: Option<u32>,
}

/// What a text has of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// None.
    Nothing,
    /// One, and no other statement.
    Alone,
    /// One or more, among others.
    Among {
        /// How many statements come before the first of them.
        before: u32,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    Word,
    /// In single quotes; `escapes` where a backslash has a meaning.
    Quoted {
        escapes: bool,
    },
    /// Behind a backslash.
    Escaped,
    /// Behind the end of a string with escapes, which goes on where the quote is doubled or another line begins with
    /// one.
    Ended {
        spaces: bool,
        newline: bool,
    },
    /// In double quotes.
    Name,
    Dash,
    LineComment,
    Slash,
    Comment {
        depth: u32,
        last: u8,
    },
    /// Behind a dollar that may begin a mark.
    Dollar,
    /// Between two marks; so much of the second one has been seen.
    Body {
        matched: usize,
    },
}

/// What is known of the statement under way.
#[derive(Debug, Default)]
struct Statement {
    tokens: u32,
    commits: bool,
    creates: bool,
    /// It creates a function or procedure, whose body may be statements between `begin` and `end`.
    routine: bool,
    depth: u32,
}

impl Statement {
    /// `word` is empty for whatever is no bare word.
    fn token(&mut self, word: &[u8]) {
        self.tokens = self.tokens.saturating_add(1);
        match (self.tokens, word) {
            (1, b"commit" | b"end") => self.commits = true,
            // Of a transaction that was left to a second phase earlier, not of this one.
            (2, b"prepared") => self.commits = false,
            (1, b"create") => self.creates = true,
            (2..=4, b"function" | b"procedure") if self.creates => self.routine = true,
            (_, b"begin") if self.routine => self.depth += 1,
            (_, b"case") if self.depth > 0 => self.depth += 1,
            (_, b"end") => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

impl Finder {
    /// Reads on.
    pub fn feed(&mut self, byte: u8) {
        match self.state {
            State::Plain => self.plain(byte),
            State::Word => self.in_word(byte),
            State::Quoted { escapes } => match byte {
                b'\'' if escapes => {
                    self.state = State::Ended {
                        spaces: false,
                        newline: false,
                    }
                }
                // Doubled, it begins the next one, and nothing is lost.
                b'\'' => self.state = State::Plain,
                b'\\' if escapes => self.state = State::Escaped,
                _ => {}
            },
            State::Escaped => self.state = State::Quoted { escapes: true },
            State::Ended { spaces, newline } => match byte {
                b'\'' if newline || !spaces => self.state = State::Quoted { escapes: true },
                _ if byte.is_ascii_whitespace() => {
                    self.state = State::Ended {
                        spaces: true,
                        newline: newline || matches!(byte, b'\n' | b'\r'),
                    }
                }
                _ => self.plain(byte),
            },
            State::Name if byte == b'"' => self.state = State::Plain,
            State::Name => {}
            State::Dash if byte == b'-' => self.state = State::LineComment,
            State::Slash if byte == b'*' => self.state = State::Comment { depth: 1, last: 0 },
            State::Dash | State::Slash => {
                self.statement.token(b"");
                self.plain(byte);
            }
            State::LineComment if matches!(byte, b'\n' | b'\r') => self.state = State::Plain,
            State::LineComment => {}
            State::Comment { depth, last } => {
                self.state = match (last, byte) {
                    (b'*', b'/') if depth == 1 => State::Plain,
                    (b'*', b'/') => State::Comment {
                        depth: depth - 1,
                        last: 0,
                    },
                    (b'/', b'*') => State::Comment {
                        depth: depth + 1,
                        last: 0,
                    },
                    _ => State::Comment { depth, last: byte },
                }
            }
            State::Dollar => self.dollar(byte),
            State::Body { matched } => self.body(byte, matched),
        }
    }

    /// What the text has, now that it is over.
    pub fn end(mut self) -> Found {
        self.word_over();
        self.statement_over();
        match (self.before, self.statements) {
            (None, _) => Found::Nothing,
            (Some(_), 1) => Found::Alone,
            (Some(before), _) => Found::Among { before },
        }
    }

    fn plain(&mut self, byte: u8) {
        self.state = State::Plain;
        match byte {
            b'\'' => self.begin(State::Quoted { escapes: false }),
            b'"' => self.begin(State::Name),
            b'-' => self.state = State::Dash,
            b'/' => self.state = State::Slash,
            b'$' => self.begin(State::Dollar),
            b'(' => {
                self.statement.token(b"");
                self.parens += 1;
            }
            b')' => {
                self.statement.token(b"");
                self.parens = self.parens.saturating_sub(1);
            }
            b';' if self.parens == 0 && self.statement.depth == 0 => self.statement_over(),
            _ if byte.is_ascii_whitespace() || byte == 0x0b => {}
            _ if is_word(byte) => {
                self.state = State::Word;
                self.word.push(byte.to_ascii_lowercase());
            }
            _ => self.statement.token(b""),
        }
    }

    /// Something that is no bare word begins.
    fn begin(&mut self, state: State) {
        self.statement.token(b"");
        self.state = state;
    }

    fn in_word(&mut self, byte: u8) {
        if is_word(byte) || byte == b'$' {
            if self.word.len() < WORD_MAX {
                self.word.push(byte.to_ascii_lowercase());
            }
            return;
        }
        let escapes = self.word == b"e";
        self.word_over();
        match byte {
            b'\'' => self.begin(State::Quoted { escapes }),
            _ => self.plain(byte),
        }
    }

    fn word_over(&mut self) {
        if self.state == State::Word {
            self.statement.token(&self.word);
        }
        self.word.clear();
    }

    fn statement_over(&mut self) {
        let statement = std::mem::take(&mut self.statement);
        self.parens = 0;
        if statement.commits {
            self.before.get_or_insert(self.statements);
        }
        self.statements += u32::from(statement.tokens > 0);
    }

    fn dollar(&mut self, byte: u8) {
        let goes_on = is_word(byte) && !(self.word.is_empty() && byte.is_ascii_digit()) && self.word.len() < MARK_MAX;
        match byte {
            b'$' => self.state = State::Body { matched: 0 },
            _ if goes_on => self.word.push(byte),
            _ => {
                self.word.clear();
                self.plain(byte);
            }
        }
    }

    /// A mark has no dollar inside, so one that does not fit may only be the beginning of another.
    fn body(&mut self, byte: u8, matched: usize) {
        let wanted = match matched {
            0 => b'$',
            n => self.word.get(n - 1).copied().unwrap_or(b'$'),
        };
        match byte == wanted {
            true if matched > self.word.len() => {
                self.word.clear();
                self.state = State::Plain;
            }
            true => self.state = State::Body { matched: matched + 1 },
            false => {
                self.state = State::Body {
                    matched: usize::from(byte == b'$'),
                };
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Found {
        let mut finder = Finder::default();
        text.bytes().for_each(|byte| finder.feed(byte));
        finder.end()
    }

    #[test]
    fn a_commit_alone_is_found_in_every_way_to_write_it() {
        for text in [
            "commit",
            "COMMIT",
            "CoMmIt;",
            "  commit ; ",
            "commit work",
            "commit transaction",
            "commit and chain",
            "commit and no chain;",
            "end",
            "END TRANSACTION;",
            "end;",
            ";;commit;;",
            "-- a comment\ncommit",
            "--\rcommit",
            "/* a /* nested */ one; */commit/* behind */;--",
            "commit--prepared",
            "commit/**/work",
            "\tcommit\n",
        ] {
            assert_eq!(found(text), Found::Alone, "{text}");
        }
    }

    #[test]
    fn a_commit_among_other_statements_is_found() {
        for text in [
            "select rowlock.settle_done('1','2',null); commit; begin isolation level read committed; savepoint rowlock",
            "select $rl$; it's $rl$; commit; begin",
            "select $rl1$ $rl$ $rl1$;commit",
            "select $$a$$,$$b$$;commit",
            "select $a$ $a $ab$ $$ $a$; commit",
            "select 'it''s'; commit",
            "select '\\'; commit",
            "select e'\\'; commit --'; commit",
            "select E'a''\\'b'; commit",
            "select e'a'\n 'b\\'c'; commit",
            "select U&'\\0041'; commit",
            "select n'a', b'1', x'f'; commit",
            "select \"a\"\"b\"; commit",
            "select a$b$ from c$b$; commit",
            "select $1; commit",
            "select 1 - 2 / 3; commit",
            "insert into t values (1); end",
            "commit; commit",
            "commit; select 1",
            "commit prepared 'x'; commit",
            "create table commit (id int); commit",
            "create rule r as on insert to t do also (delete from a; delete from b); commit",
            "create function f() returns int begin atomic select case when true then 1 end; select 2; end; commit",
            "select /* ; */ 1 -- ;\n; commit",
            "select 'ü', ü; commit",
        ] {
            assert!(matches!(found(text), Found::Among { .. }), "{text}");
        }
        for (text, before) in [
            ("commit; select 1", 0),
            ("select ';';; commit; begin; commit", 1),
            ("rollback to s; release s; end", 2),
        ] {
            assert_eq!(found(text), Found::Among { before }, "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_commit_is_none() {
        for text in [
            "",
            ";",
            "begin",
            "rollback",
            "prepare transaction 'x'",
            "commit prepared 'x'",
            "COMMIT /* a */ PREPARED 'x';",
            "rollback prepared 'x'; commit prepared 'x'",
            "select commit from t",
            "select \"commit\"",
            "\"commit\"",
            "\"commit\"; \"end\"",
            "select 1 as end_of_it",
            "select case when true then 1 end",
            "committed",
            "commit_all",
            "commit$",
            "ecommit; commité",
            "select '; commit; '",
            "select 'it''s; commit; '",
            "select e'\\'; commit; '",
            "select E'a''; commit; \\'; commit; '",
            "select e'a'\n'\\'; commit; '",
            "select $$; commit; $$",
            "select $rl$; commit; $rl; commit; $ rl$ $rl$",
            "select $rl1$; commit; $rl$; commit; $rl1$",
            "select $$ unfinished; commit;",
            "select 'unfinished; commit;",
            "select /* ; commit; /* ; */ ; commit; */ 1",
            "select 1 -- ; commit;",
            "select \"; commit; \"",
            "select (1; commit)",
            "do $$ begin commit; end $$",
            "create procedure p() language sql begin atomic insert into t values (1); end",
            "create or replace function f() returns int begin atomic; select 1; end",
            "savepoint commit; release commit",
        ] {
            assert_eq!(found(text), Found::Nothing, "{text}");
        }
    }
}
