//! The class `Agent`.

use std::sync::{Arc, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyUntypedArrayMethods};
use posse_core::wire::{decode_downlink, decode_uplink, encode_uplink};
use posse_core::{Algorithm, Arms, Tick, UserId};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict};

use crate::array::{Offer, PlayedArm, cube, matrix, maybe_number};
use crate::error::{decode, input, protocol, wrong_input, wrong_interaction};
use crate::federation::{Federation, ticks};
use crate::machine::{Asker, Machine, START, SharedMachine, Spec};
use crate::own::{free, free_to_use, held};

/// Interactions of a replay between two looks at Ctrl-C.
const CHUNK: usize = 4096;

/// A learner that chooses among arms for its own users.
///
/// ``Federation.agent`` makes agents. An agent may be used from several threads; a call waits for the one before it.
/// Methods that compute for longer than some microseconds release the interpreter's lock. When a method raises, nothing has
/// changed, but for ``replay``, which says at which interaction it stopped.
///
/// The agent never sends anything by itself. What it has to say waits in it, and is taken by ``Federation.exchange`` or, if
/// messages travel some other way, by ``take_uplink``.
#[pyclass(frozen, module = "posse", name = "FederationAgent")]
pub(crate) struct Agent {
    spec: Arc<Spec>,
    machine: SharedMachine,
    id: u64,
}

impl Agent {
    pub(crate) const fn new(spec: Arc<Spec>, machine: SharedMachine, id: u64) -> Self {
        Self { spec, machine, id }
    }

    /// The machine, for one caller at a time. A thread that waits for it does so without the interpreter's lock.
    fn machine(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Machine>> {
        if matches!(self.spec.algorithm, Algorithm::Outside(_)) {
            free_to_use(&self.machine)?;
        }
        Ok(self.machine.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }

    fn user(&self, user: Option<u64>) -> UserId {
        UserId(user.unwrap_or(self.id))
    }

    /// Makes an offer to the machine, and writes down whose it is. After an error there is no offer.
    fn take_offer(&self, machine: &mut Machine, offer: Offer, user: UserId) -> PyResult<()> {
        machine.asker = None;
        offer.fill(&mut machine.arms)?;
        machine.asker = Some(Asker::here(self.id, user));
        Ok(())
    }

    /// Calls `work` on an offer of `arms` arms, without the interpreter's lock unless it is over in microseconds.
    fn compute<T: Send>(&self, py: Python<'_>, arms: usize, work: impl FnOnce() -> T + Send) -> PyResult<T> {
        if self.spec.is_brief(arms) { Ok(work()) } else { free(py, work) }
    }
}

#[pymethods]
impl Agent {
    /// The number of the agent in its federation, from 0.
    #[getter]
    const fn id(&self) -> u64 {
        self.id
    }

    /// How many features an arm has.
    #[getter]
    fn dimension(&self) -> usize {
        self.spec.shape.dimension()
    }

    /// Choose one of some arms.
    ///
    /// Parameters
    /// ----------
    /// arms : array_like, shape (n_arms, dimension)
    ///     A row of features for each arm. A float64 array is read where it is; others are converted.
    /// user : int, optional
    ///     The user that the choice is for. By default the agent has one user.
    ///
    /// Returns
    /// -------
    /// int
    ///     The index of the chosen arm.
    #[pyo3(signature = (arms, user = None))]
    fn choose(
        &self,
        py: Python<'_>,
        arms: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = maybe_number)] user: Option<u64>,
    ) -> PyResult<usize> {
        self.choose_with_propensity(py, arms, user).map(|(arm, _)| arm)
    }

    /// Choose one of some arms, and say how probable the choice was.
    ///
    /// Parameters
    /// ----------
    /// arms : array_like, shape (n_arms, dimension)
    ///     A row of features for each arm.
    /// user : int, optional
    ///     The user that the choice is for.
    ///
    /// Returns
    /// -------
    /// tuple of int and float or None
    ///     The index of the chosen arm, and the probability with which the algorithm would choose it here: 1 for
    ///     deterministic algorithms, None where it is not known.
    #[pyo3(signature = (arms, user = None))]
    fn choose_with_propensity(
        &self,
        py: Python<'_>,
        arms: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = maybe_number)] user: Option<u64>,
    ) -> PyResult<(usize, Option<f64>)> {
        let (user, offer) = (self.user(user), Offer::read(arms)?);
        let mut machine = self.machine(py)?;
        self.take_offer(&mut machine, offer, user)?;
        let Machine { agent, arms, .. } = &mut *machine;
        let choice =
            self.compute(py, arms.len(), || agent.choose(user, arms))?.map_err(|error| input(&error))?;
        Ok((choice.arm, choice.propensity))
    }

    /// Look at an offer before choosing from it: perhaps the agent has a question for the coordinator.
    ///
    /// Only the ``exchange-`` algorithms ask. Deliver the question with ``Federation.exchange``, or on your own transport
    /// and wait for the answer as long as you can, and then call ``choose``.
    ///
    /// Parameters
    /// ----------
    /// arms : array_like, shape (n_arms, dimension)
    ///     The offer that ``choose`` will be called with.
    /// user : int, optional
    ///     The user that the choice is for.
    /// now : float, optional
    ///     The time in seconds since any fixed moment. It never goes back.
    ///
    /// Returns
    /// -------
    /// bool
    ///     Whether there is a question to be delivered.
    #[pyo3(signature = (arms, user = None, now = None))]
    fn prepare(
        &self,
        py: Python<'_>,
        arms: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = maybe_number)] user: Option<u64>,
        now: Option<f64>,
    ) -> PyResult<bool> {
        let (user, offer) = (self.user(user), Offer::read(arms)?);
        let now: Tick = now.map_or(Ok(START), ticks)?;
        let mut machine = self.machine(py)?;
        self.take_offer(&mut machine, offer, user)?;
        let Machine { agent, arms, outbox, .. } = &mut *machine;
        let question = self
            .compute(py, arms.len(), || agent.prepare(now, user, arms))?
            .map_err(|error| input(&error))?;
        let asks = question.is_some();
        outbox.extend(question);
        Ok(asks)
    }

    /// Learn what an arm earned, at once or days after it was chosen.
    ///
    /// Parameters
    /// ----------
    /// arm : int, or array_like of shape (dimension,)
    ///     The arm that was played: its index in the last offer, or its features. Pass features where other offers may come
    ///     between a choice and its reward, as with rewards that come late. An index in the offer of another user, agent or
    ///     thread is refused.
    /// reward : float
    ///     The reward that it gave.
    /// user : int, optional
    ///     The user that the arm was chosen for.
    ///
    /// Raises
    /// ------
    /// InputError
    ///     The last offer was somebody else's or has no such arm, or the features or the reward are wrong.
    #[pyo3(signature = (arm, reward, user = None))]
    fn learn(
        &self,
        py: Python<'_>,
        arm: &Bound<'_, PyAny>,
        reward: f64,
        #[pyo3(from_py_with = maybe_number)] user: Option<u64>,
    ) -> PyResult<()> {
        let (user, played) = (self.user(user), PlayedArm::read(arm)?);
        let mut machine = self.machine(py)?;
        let machine = &mut *machine;
        match played {
            PlayedArm::Index(index) => {
                let index = machine.offered(index, Asker::here(self.id, user)).map_err(wrong_input)?;
                self.compute(py, 0, || machine.learn_offered(user, index, reward).map(drop))?
            }
            PlayedArm::Features(features) => {
                self.compute(py, 0, || machine.learn(user, &features, reward))?
            }
        }
        .map_err(|error| input(&error))
    }

    /// Choose and learn many times in one call, without the interpreter's lock.
    ///
    /// Nothing is exchanged in between: ``Federation.replay`` does that.
    ///
    /// Parameters
    /// ----------
    /// offers : array_like, shape (n, n_arms, dimension)
    ///     The arms of each interaction.
    /// rewards : array_like, shape (n, n_arms)
    ///     What each arm would earn. Only the reward of the chosen arm is learned.
    /// user : int, optional
    ///     The user of all interactions.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray of int64, shape (n,)
    ///     The index of the chosen arm of each interaction.
    ///
    /// Raises
    /// ------
    /// InputError
    ///     An argument is wrong. If it is the offer or the reward of one interaction, the text says which, and the agent has
    ///     learned from all before it.
    #[pyo3(signature = (offers, rewards, user = None))]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        offers: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = maybe_number)] user: Option<u64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let user = self.user(user);
        let mut machine = self.machine(py)?;
        let machine = &mut *machine;
        let choices = replayed(py, self.dimension(), offers, rewards, |step, offer, rewards| {
            machine.interact(user, offer, rewards).map_err(|error| wrong_interaction(step, &error))
        })?;
        Ok(choices.into_pyarray(py))
    }

    /// Play offers that were taken over beforehand, `rounds` times: what the machine does without Python, for
    /// benchmarks/compare.py.
    fn _play_prepared(
        &self,
        py: Python<'_>,
        offers: &Bound<'_, PyAny>,
        rewards: &Bound<'_, PyAny>,
        rounds: usize,
    ) -> PyResult<()> {
        let mut prepared = Vec::new();
        replayed(py, self.dimension(), offers, rewards, |_, offer, rewards| {
            let mut arms = Arms::new(self.dimension());
            arms.set_rows(offer).map_err(|error| input(&error))?;
            prepared.push((arms, rewards.to_vec()));
            Ok(0)
        })?;
        let mut machine = self.machine(py)?;
        let (agent, user) = (&mut machine.agent, self.user(None));
        let played = free(py, || {
            for (arms, rewards) in (0..rounds).flat_map(|_| &prepared) {
                let arm = agent.choose(user, arms)?.arm;
                agent.learn(user, arms.row(arm), rewards[arm])?;
            }
            Ok(())
        })?;
        played.map_err(|error| input(&error))
    }

    /// Tell the agent that the reward of a choice will never come.
    ///
    /// Private agents count the interaction without learning from it; others do nothing.
    #[pyo3(signature = (user = None))]
    fn give_up(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = maybe_number)] user: Option<u64>,
    ) -> PyResult<()> {
        let user = self.user(user);
        let mut machine = self.machine(py)?;
        let said = held(|| machine.agent.give_up(user))?;
        machine.outbox.extend(said);
        Ok(())
    }

    /// Take the oldest message that the agent has for the coordinator.
    ///
    /// Deliver every message once and in order, with ``Coordinator.receive``.
    ///
    /// Returns
    /// -------
    /// bytes or None
    ///     The message in posse's wire format, or None if there is nothing to say.
    fn take_uplink<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = self.machine(py)?.outbox.pop_front();
        Ok(message.map(|message| PyBytes::new(py, &encode_uplink(&message))))
    }

    /// Take in a message of the coordinator. An answer, if there is one, waits for ``take_uplink``.
    ///
    /// Parameters
    /// ----------
    /// message : bytes
    ///     What ``Coordinator.receive`` or ``Coordinator.join`` returned for this agent.
    fn receive(&self, py: Python<'_>, message: &[u8]) -> PyResult<()> {
        let message = decode_downlink(message).map_err(|error| decode(&error))?;
        let mut machine = self.machine(py)?;
        let machine = &mut *machine;
        free(py, || machine.receive(message))?.map_err(|error| protocol(&error))
    }

    /// What the agent holds.
    ///
    /// Returns
    /// -------
    /// dict
    ///     ``version``: the newest state of the coordinator that the agent has; ``shared``: observations of all agents in it;
    ///     ``in_flight``: own observations that were sent and are not known to have arrived; ``unsent`` and ``withheld``:
    ///     own observations that were not sent; ``information``: what the unsent ones add to the model.
    fn inspect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let machine = self.machine(py)?;
        let view = held(|| machine.agent.inspect())?;
        let dict = PyDict::new(py);
        dict.set_item("version", view.version.0)?;
        dict.set_item("shared", view.shared)?;
        dict.set_item("in_flight", view.in_flight.map_or(0, |(_, count)| count))?;
        dict.set_item("unsent", view.unsent)?;
        dict.set_item("withheld", view.withheld)?;
        dict.set_item("information", view.fresh_information)?;
        Ok(dict)
    }

    /// The parameters that the agent believes in, of agents with a linear model.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray or None
    ///     One number for each shared feature, or None if the model is not linear.
    fn estimate<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray1<f64>>>> {
        let machine = self.machine(py)?;
        let view = held(|| machine.agent.inspect())?;
        Ok(view.linear.map(|linear| linear.model.estimate().into_pyarray(py)))
    }

    /// Encode everything that a restored agent needs to go on with the same choices.
    ///
    /// Messages that wait in the agent are not part of it: take them first. Pickling keeps them.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut machine = self.machine(py)?;
        let agent = &mut machine.agent;
        let state = free(py, move || agent.save())?;
        Ok(PyBytes::new(py, &state))
    }

    /// Go on from a state that an agent of the same settings saved.
    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let mut machine = self.machine(py)?;
        let machine = &mut *machine;
        free(py, || machine.agent.restore(state))?.map_err(|error| decode(&error))
    }

    fn __repr__(&self) -> String {
        format!("<posse.FederationAgent {} of {}>", self.id, self.spec.algorithm.name())
    }

    /// Pickles the agent with its state, its waiting messages and the settings of its federation, without the other members.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, AgentParts<'py>)> {
        let machine = self.machine(py)?;
        let outbox = machine.outbox.iter().map(|message| PyBytes::new(py, &encode_uplink(message))).collect();
        let state = PyBytes::new(py, &held(|| machine.agent.save())?);
        let rebuild = py.get_type::<Self>().getattr("_rebuild")?;
        Ok((rebuild, (Federation::plain(&self.spec)?, self.id, state, outbox)))
    }

    #[staticmethod]
    fn _rebuild(
        federation: &Federation,
        id: u64,
        state: &[u8],
        outbox: Vec<Vec<u8>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let agent = federation.agent(py, id)?;
        {
            let mut machine = agent.machine(py)?;
            held(|| machine.agent.restore(state))?.map_err(|error| decode(&error))?;
            for message in outbox {
                machine.outbox.push_back(decode_uplink(&message).map_err(|error| decode(&error))?);
            }
        }
        Ok(agent)
    }
}

/// What an agent is pickled as: its federation, its number, its state and its messages.
type AgentParts<'py> = (Federation, u64, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

/// Calls `interact` with the offer and rewards of each interaction, without the interpreter's lock, and looks for Ctrl-C now
/// and then. Returns the chosen arms.
pub(crate) fn replayed<'py>(
    py: Python<'py>,
    dimension: usize,
    offers: &Bound<'py, PyAny>,
    rewards: &Bound<'py, PyAny>,
    mut interact: impl FnMut(usize, &[f64], &[f64]) -> PyResult<usize> + Send,
) -> PyResult<Vec<i64>> {
    let (offers, rewards) = (cube(offers)?, matrix(rewards)?);
    let (shape, paid) = (offers.shape(), rewards.shape());
    let (steps, arms, features) = (shape[0], shape[1], shape[2]);
    if features != dimension {
        return Err(wrong_input(format!("expected {dimension} features, got {features}")));
    }
    if paid[0] != steps || paid[1] != arms {
        let got = format!("{} × {}", paid[0], paid[1]);
        return Err(wrong_input(format!(
            "rewards are {got}: expected {steps} × {arms}, one for each arm offered"
        )));
    }
    if arms == 0 && steps > 0 {
        return Err(input(&posse_core::InputError::NoArms));
    }
    // Borrowed if their rows follow each other in memory, otherwise copied once.
    let (copied_offers, copied_rewards);
    let offers = match offers.as_slice() {
        Ok(slice) if offers.is_c_contiguous() => slice,
        _ => {
            copied_offers = offers.as_array().iter().copied().collect::<Vec<f64>>();
            &copied_offers[..]
        }
    };
    let rewards = match rewards.as_slice() {
        Ok(slice) if rewards.is_c_contiguous() => slice,
        _ => {
            copied_rewards = rewards.as_array().iter().copied().collect::<Vec<f64>>();
            &copied_rewards[..]
        }
    };
    let mut choices = Vec::with_capacity(steps);
    while choices.len() < steps {
        let end = steps.min(choices.len() + CHUNK);
        free(py, || {
            for step in choices.len()..end {
                let offer = &offers[step * arms * features..(step + 1) * arms * features];
                choices.push(interact(step, offer, &rewards[step * arms..(step + 1) * arms])? as i64);
            }
            Ok::<(), PyErr>(())
        })??;
        py.check_signals()?;
    }
    Ok(choices)
}
