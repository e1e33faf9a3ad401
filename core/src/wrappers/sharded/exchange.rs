//! The exchange of gradients and updates between ranks.

use core::hash::Hash;
use core::mem::take;

use crate::collective::{Collective, Pending, numbers, wait_checked};
use crate::element::DType;
use crate::engine::InitContext;
use crate::engine::ranks::{Layout, Ranks};
use crate::error::Result;
use crate::memory::RawBytes;
use crate::state::Moments;
use crate::tree::Structure;

/// The mean gradients of this rank's share, and messages of each kind, one per round.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Batch parts in each rank's mean gradients.
    parts: Vec<u64>,
    reduce_dtype: Option<DType>,
    pub(super) mean: Moments,
    /// Message layouts of gradients, updates, and this rank's updates.
    pub(super) grads: Layout,
    pub(super) updates: Layout,
    pub(super) own: Layout,
    /// Messages of gradients until they are reduced, then of updates.
    messages: Vec<Vec<u8>>,
    own_messages: Vec<Vec<u8>>,
    /// Buffers for messages during the reduction.
    message_buffers: Vec<Vec<u8>>,
}

impl Exchange {
    pub(super) fn new(
        ranks: &Ranks,
        structure: &Structure,
        inside: &InitContext<'_>,
        parts: usize,
        reduce_dtype: Option<DType>,
    ) -> Result<Exchange> {
        let updates = Layout::new(ranks, structure, None);
        let messages = vec![Vec::new(); ranks.rounds()];
        Ok(Exchange {
            parts: numbers(&*ranks.collective, parts as u64)?,
            reduce_dtype,
            mean: inside.moments()?,
            grads: Layout::new(ranks, structure, reduce_dtype),
            own: updates.own(),
            updates,
            own_messages: messages.clone(),
            messages,
            message_buffers: Vec::new(),
        })
    }

    /// Returns the facts that `init` exchanged: each rank's parts, and the dtype of gradients.
    pub(super) fn init_facts(&self) -> impl Hash + '_ {
        (&self.parts, self.reduce_dtype)
    }

    pub(super) fn lend(&mut self) -> Vec<RawBytes> {
        self.grads.lend(&mut self.messages)
    }

    /// Lends messages for this rank's updates.
    pub(super) fn lend_own(&mut self) -> Vec<RawBytes> {
        self.own.lend(&mut self.own_messages)
    }

    /// Reduces all ranks' gradients to the mean of this rank's share.
    pub(super) fn reduce(&mut self, collective: &dyn Collective) -> Result<()> {
        let begin = |this: &mut Self, round: usize| {
            let to = &this.grads.lens[round];
            let from = vec![to[collective.rank()]; to.len()];
            let (send, room) = (take(&mut this.messages[round]), this.message_buffers.pop().unwrap_or_default());
            (collective.begin_all_to_all(send, to, room, &from), from)
        };
        self.each_round(collective, begin, |this, round, [sent, received]| {
            this.grads.mean(round, &this.parts, &received, &mut this.mean);
            this.messages[round] = sent;
            this.message_buffers.push(received);
        })
    }

    /// Sends all ranks' updates to all, and returns the messages.
    pub(super) fn spread(&mut self, collective: &dyn Collective) -> Result<Vec<RawBytes>> {
        let begin = |this: &mut Self, round: usize| {
            let (send, room) = (take(&mut this.own_messages[round]), take(&mut this.messages[round]));
            let from = this.updates.lens[round].clone();
            (collective.begin_all_gather(send, room, &from), from)
        };
        self.each_round(collective, begin, |this, round, [sent, received]| {
            (this.own_messages[round], this.messages[round]) = (sent, received);
        })?;
        Ok(self.updates.lend(&mut self.messages))
    }

    /// Overlaps each round's transfer with work on the previous round.
    fn each_round<'c>(
        &mut self,
        collective: &'c dyn Collective,
        begin: impl Fn(&mut Self, usize) -> (Pending<'c>, Vec<usize>),
        end: impl Fn(&mut Self, usize, [Vec<u8>; 2]),
    ) -> Result<()> {
        let (rounds, mut travels) = (self.messages.len(), None);
        for round in 0..=rounds {
            let next = (round < rounds).then(|| begin(self, round));
            if let Some((pending, from)) = core::mem::replace(&mut travels, next) {
                let both = wait_checked(collective, pending, &from)?;
                end(self, round - 1, both);
            }
        }
        Ok(())
    }
}
