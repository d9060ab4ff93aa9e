//! A lexical walk over JSON (RFC 8259): tokens are checked and forwarded, but not interpreted.

/// Maximum nesting of objects and arrays.
pub(crate) const MAX_NESTING: usize = 512;

/// A newline followed by the indentation of the deepest level.
static LINE: [u8; 1 + 2 * MAX_NESTING] = {
    let mut line = [b' '; 1 + 2 * MAX_NESTING];
    line[0] = b'\n';
    line
};

/// A consumer of tokens. `depth` is the number of open containers.
pub(crate) trait Sink {
    /// Whether white space between tokens is allowed (it is never forwarded).
    const WHITE_SPACE: bool;

    /// The opening bracket of a nonempty container; `depth` includes it.
    fn open(&mut self, bracket: u8, depth: usize);
    /// The closing bracket of a nonempty container; `depth` excludes it.
    fn close(&mut self, bracket: u8, depth: usize);
    /// The comma between two members of the container at `depth`.
    fn comma(&mut self, depth: usize);
    /// The name of a field, with quotes, and the colon after it.
    fn key(&mut self, name: &[u8]);
    /// A string, number or literal as written, or an empty container.
    fn value(&mut self, text: &[u8]);
    /// Returns whether the walk should stop, since the result is no longer wanted.
    fn is_full(&self) -> bool {
        false
    }
}

/// Formats tokens with one member on each line.
pub(crate) struct Layout {
    text: Vec<u8>,
    most: usize,
}

impl Layout {
    /// Creates a layout for a text of `len` bytes, which may grow to eight times its length plus 4 KiB.
    pub(crate) fn of(len: usize) -> Self {
        Self {
            // Most Kubernetes objects grow by less than a half.
            text: Vec::with_capacity(len + len / 2 + 64),
            most: 8 * len + 4096,
        }
    }

    /// Returns the text; `None` if it became too long.
    pub(crate) fn finish(mut self) -> Option<Vec<u8>> {
        self.text.push(b'\n');
        (!self.is_full()).then_some(self.text)
    }

    fn line(&mut self, depth: usize) {
        self.text.extend_from_slice(&LINE[..=2 * depth]);
    }
}

impl Sink for Layout {
    const WHITE_SPACE: bool = false;

    fn open(&mut self, bracket: u8, depth: usize) {
        self.text.push(bracket);
        self.line(depth);
    }

    fn close(&mut self, bracket: u8, depth: usize) {
        self.line(depth);
        self.text.push(bracket);
    }

    fn comma(&mut self, depth: usize) {
        self.text.push(b',');
        self.line(depth);
    }

    fn key(&mut self, name: &[u8]) {
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
    }

    fn value(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    // Indentation multiplies the size of deeply nested lists of small members.
    fn is_full(&self) -> bool {
        self.text.len() > self.most
    }
}

/// Removes white space.
pub(crate) struct Squeeze(pub(super) Vec<u8>);

impl Sink for Squeeze {
    const WHITE_SPACE: bool = true;

    fn open(&mut self, bracket: u8, _: usize) {
        self.0.push(bracket);
    }

    fn close(&mut self, bracket: u8, _: usize) {
        self.0.push(bracket);
    }

    fn comma(&mut self, _: usize) {
        self.0.push(b',');
    }

    fn key(&mut self, name: &[u8]) {
        self.0.extend_from_slice(name);
        self.0.push(b':');
    }

    fn value(&mut self, text: &[u8]) {
        self.0.extend_from_slice(text);
    }
}

/// Only checks whether the text is well-formed.
pub(crate) struct Check;

impl Sink for Check {
    const WHITE_SPACE: bool = true;

    fn open(&mut self, _: u8, _: usize) {}
    fn close(&mut self, _: u8, _: usize) {}
    fn comma(&mut self, _: usize) {}
    fn key(&mut self, _: &[u8]) {}
    fn value(&mut self, _: &[u8]) {}
}

/// Position at which a text is not a JSON object or array.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) offset: usize,
    pub(crate) expected: &'static str,
}

/// Forwards the tokens of `text`, which must be valid UTF-8 and a single JSON object or array, to `sink`. Takes one pass and
/// constant memory.
pub(crate) fn walk<S: Sink>(text: &[u8], sink: &mut S) -> Result<(), Malformed> {
    let mut cursor = Cursor { text, at: 0 };
    cursor.space::<S>();
    if !matches!(cursor.peek(), b'{' | b'[') {
        return Err(cursor.expected("a JSON object or array"));
    }
    // Whether the container at each depth is an object.
    let mut objects = [false; MAX_NESTING];
    let mut depth = 0;
    'value: loop {
        let start = cursor.at;
        match cursor.peek() {
            b'"' => sink.value(cursor.string()?),
            bracket @ (b'{' | b'[') => {
                cursor.at += 1;
                cursor.space::<S>();
                let is_object = bracket == b'{';
                // In ASCII the closing bracket is two after the opening one.
                if cursor.peek() == bracket + 2 {
                    cursor.at += 1;
                    sink.value(if is_object { b"{}" } else { b"[]" });
                } else {
                    if depth == MAX_NESTING {
                        cursor.at = start;
                        return Err(cursor.expected("nesting of at most 512"));
                    }
                    objects[depth] = is_object;
                    depth += 1;
                    sink.open(bracket, depth);
                    if is_object {
                        cursor.key(sink)?;
                    }
                    continue 'value;
                }
            }
            b'-' | b'0'..=b'9' => sink.value(cursor.number()?),
            b't' => sink.value(cursor.literal(b"true")?),
            b'f' => sink.value(cursor.literal(b"false")?),
            b'n' => sink.value(cursor.literal(b"null")?),
            _ => return Err(cursor.expected("a value")),
        }
        // The value may be the last member of several containers.
        while depth > 0 {
            cursor.space::<S>();
            let is_object = objects[depth - 1];
            match (cursor.peek(), is_object) {
                (b',', _) => {
                    if sink.is_full() {
                        return Err(cursor.expected("less indentation"));
                    }
                    cursor.at += 1;
                    sink.comma(depth);
                    cursor.space::<S>();
                    if is_object {
                        cursor.key(sink)?;
                    }
                    continue 'value;
                }
                (bracket @ b'}', true) | (bracket @ b']', false) => {
                    cursor.at += 1;
                    depth -= 1;
                    sink.close(bracket, depth);
                }
                (_, true) => return Err(cursor.expected("a comma or }")),
                (_, false) => return Err(cursor.expected("a comma or ]")),
            }
        }
        cursor.space::<S>();
        return if cursor.at == text.len() { Ok(()) } else { Err(cursor.expected("the end")) };
    }
}

/// A position in a text. NUL stands for the end: no token may contain it.
struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn expected(&self, expected: &'static str) -> Malformed {
        Malformed { offset: self.at, expected }
    }

    fn space<S: Sink>(&mut self) {
        if S::WHITE_SPACE {
            while matches!(self.peek(), b' ' | b'\n' | b'\t' | b'\r') {
                self.at += 1;
            }
        }
    }

    /// Reads a field's name and the colon, up to the value.
    fn key<S: Sink>(&mut self, sink: &mut S) -> Result<(), Malformed> {
        if self.peek() != b'"' {
            return Err(self.expected("a field's name"));
        }
        let name = self.string()?;
        self.space::<S>();
        if self.peek() != b':' {
            return Err(self.expected("a colon"));
        }
        self.at += 1;
        self.space::<S>();
        sink.key(name);
        Ok(())
    }

    /// Reads the string at the cursor, with its quotes.
    fn string(&mut self) -> Result<&'t [u8], Malformed> {
        let start = self.at;
        self.at += 1;
        loop {
            self.plain();
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at]);
                }
                b'\\' => self.escape()?,
                _ => return Err(self.expected("no control character in a string, and its end")),
            }
        }
    }

    /// Advances to the next quote, backslash, control character or the end; eight bytes at a time.
    fn plain(&mut self) {
        const ONES: u64 = u64::from_ne_bytes([1; 8]);
        const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
        // Sets the high bit of each zero byte of a word; bits above the first are unreliable.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
        while let Some(eight) = self.text[self.at..].first_chunk() {
            let word = u64::from_le_bytes(*eight);
            let quote = zero(word ^ u64::from_ne_bytes([b'"'; 8]));
            let backslash = zero(word ^ u64::from_ne_bytes([b'\\'; 8]));
            let control = zero(word & u64::from_ne_bytes([0xE0; 8]));
            let stops = quote | backslash | control;
            if stops != 0 {
                self.at += (stops.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        while !matches!(self.peek(), b'"' | b'\\' | 0..=0x1F) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_ascii_hexdigit() {
                        return Err(self.expected("a hexadecimal digit"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.expected("an escape of JSON")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<&'t [u8], Malformed> {
        let start = self.at;
        self.skip(b"-");
        if self.peek() == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.skip(b".") {
            self.digits()?;
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    /// Skips a byte if it is in `bytes`.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let found = bytes.contains(&self.peek());
        self.at += usize::from(found);
        found
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        if !self.peek().is_ascii_digit() {
            return Err(self.expected("a digit"));
        }
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, literal: &'static [u8]) -> Result<&'t [u8], Malformed> {
        let text = self.text;
        if !text[self.at..].starts_with(literal) {
            return Err(self.expected("true, false or null"));
        }
        self.at += literal.len();
        Ok(&text[self.at - literal.len()..self.at])
    }
}
