//! Bytes as a script, which selects a target's actions and their arguments.

/// The rest of the input. Reads beyond the end return zeros, or less.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(super) fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes a piece, whose length is in two bytes.
    pub(super) fn piece(&mut self) -> &'a [u8] {
        let length = u16::from_le_bytes([self.byte(), self.byte()]);
        self.take(length.into())
    }

    /// Takes eight bytes as a number.
    pub(super) fn number(&mut self) -> i64 {
        let mut bytes = [0; 8];
        let taken = self.take(8);
        bytes[..taken.len()].copy_from_slice(taken);
        i64::from_le_bytes(bytes)
    }
}
