//! Calls in a slot that is being moved, "open" in the words of `redis-cli`.
//!
//! Its owner executes a call only if it has all keys that the call declares, and so does the node that
//! receives the slot. A limiter rarely has all five keys: those of the other mode are missing. So it would
//! get no answers from the time its slot is opened until it is closed; if a resharding was interrupted, that
//! is until somebody notices. Calls to an open slot therefore declare fewer keys:
//!
//! - If the owner has none of the keys, nothing is left to be moved, and the owner takes no new keys: all
//!   present and future keys are at the receiving node. There the call declares only its first key, because a
//!   single key need not exist.
//! - If the owner has the keys of the mode in force, it gets a call that declares these.
//! - Otherwise the keys are being moved, and the call must wait. If it were executed on one of the nodes,
//!   keys on the other one would be taken for missing.

use redis::{Cmd, pipe};

use super::*;

enum KeysPlace {
    /// At the node that receives the slot.
    There(Address),
    /// At the owner of the slot, the keys of the mode in force; contains their positions.
    Here([usize; 3]),
}

impl Nodes {
    /// Executes a call that `owner` has refused with `answer` because it does not have all keys.
    pub(super) async fn send_in_open_slot(
        &self,
        call: &RoutedCall<'_>,
        owner: &Address,
        answer: Value,
    ) -> Result<Value, Error> {
        let redirect = Redirect::read(&answer, owner);
        let Some(script) = call.command.script else {
            return match redirect {
                Some(Redirect::Ask(node)) => self.send_asking(call, node, &call.command.cmd).await,
                _ => Ok(answer),
            };
        };
        if script.open_slot == OpenSlot::Waits {
            return Err(on_their_way());
        }
        match self.find_keys(call, owner).await? {
            KeysPlace::There(node) => {
                let command = call.command.in_open_slot(script, &[0]);
                self.send_asking(call, node, &command.cmd).await
            }
            KeysPlace::Here(declared) if script.open_slot == OpenSlot::AtEither => {
                let command = call.command.in_open_slot(script, &declared);
                let here = RoutedCall { command: &command, ..*call };
                let value = self.send_to(owner, &here).await?;
                // The keys may have left since we looked.
                match Redirect::read(&value, owner) {
                    None => Ok(value),
                    Some(Redirect::Down) => self.down(owner, value),
                    Some(_) => Err(on_their_way()),
                }
            }
            KeysPlace::Here(_) => Err(on_their_way()),
        }
    }

    /// Asks the owner of the slot for each key alone, which it never refuses: for a missing key it answers
    /// with the address of the receiving node. Fails if keys are on their way.
    async fn find_keys(&self, call: &RoutedCall<'_>, owner: &Address) -> Result<KeysPlace, Error> {
        let keys = call.command.keys();
        let mut look = pipe();
        for key in &keys {
            look.cmd("EXISTS").arg(key);
        }
        look.cmd("HGET").arg(keys.first()).arg("type");
        let found = self.connections(owner).send_all(&look, call.left()).await;
        // Whatever its outcome, it has changed nothing.
        let found = found
            .map_err(|error| self.failed(owner, error.with_execution(Execution::NotExecuted)))?;
        let mut receiver = None;
        let mut is_here = Vec::with_capacity(keys.len());
        for value in &found[..keys.len()] {
            match Redirect::read(value, owner) {
                Some(Redirect::Ask(node)) => {
                    receiver = Some(node);
                    is_here.push(false);
                }
                None if *value == Value::Int(1) => is_here.push(true),
                // The slot is no longer open.
                _ => return Err(on_their_way()),
            }
        }
        let of_mode = match &found[keys.len()] {
            Value::BulkString(mode) if mode == b"0" => [0, 1, 2],
            Value::BulkString(mode) if mode == b"1" => [0, 3, 4],
            _ => [0; 3],
        };
        match receiver {
            Some(node) if !is_here.contains(&true) => Ok(KeysPlace::There(node)),
            _ if of_mode != [0; 3] && of_mode.iter().all(|key| is_here[*key]) => {
                Ok(KeysPlace::Here(of_mode))
            }
            _ => Err(on_their_way()),
        }
    }

    /// Sends a command to the node that receives the slot, which accepts it only after an ASKING on the same
    /// connection.
    async fn send_asking(
        &self,
        call: &RoutedCall<'_>,
        node: Address,
        command: &Cmd,
    ) -> Result<Value, Error> {
        let node = self.access.address_map.reachable(node);
        let mut both = pipe();
        both.add_command(cmd("ASKING")).add_command(command.clone());
        let sent = self.connections(&node).send_all(&both, call.left()).await;
        let mut replies = sent.map_err(|error| self.failed(&node, error))?;
        let Some(value) = replies.pop() else { return Err(unavailable("it did not answer")) };
        match Redirect::read(&value, &node) {
            None => Ok(value),
            Some(Redirect::Down) => self.down(&node, value),
            // Meanwhile the node has become the owner, or the slot has gone elsewhere.
            Some(_) => Err(on_their_way()),
        }
    }
}

fn on_their_way() -> Error {
    unavailable("the slot of the limiter's keys is being moved to another node").passing()
}
