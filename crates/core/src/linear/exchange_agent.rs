//! The agent of the exchange: pushes when what it withholds costs others more than a message, and asks
//! before a choice when what it has not heard costs itself more than the answer.

use prost::Message;

use crate::agent::{Agent, AgentView, Choice};
use crate::arms::{Arms, best};
use crate::error::{DecodeError, InputError, ProtocolError};
use crate::evidence::{Evidence, check_observation};
use crate::exchange::belief::{Adopted, Belief};
use crate::ids::{Tick, UserId, Version};
use crate::linear::exchange_lin_ucb::ExchangeConfig;
use crate::linear::exchange_price::{cost_of_withholding, expected_loss, relative_age, worth_of_pull};
use crate::linear::rule::Rule;
use crate::message::{Answer, Downlink, EvidenceUpload, News, Pull, Uplink};
use crate::parcel::Parcel;
use crate::scoring::check_arms;
use crate::width::{ModelConfig, Width};
use crate::wire::{self, v1};

/// Weight of the choices before, when the average doubt takes in another one.
const MEMORY: f64 = 0.9;

/// An agent of `exchange-lin-ucb`, `exchange-lin-ts` or `exchange-lin-igw`.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeAgent {
    name: &'static str,
    view: Belief,
    rule: Rule,
    width: Width,
    noise: f64,
    config: ExchangeConfig,
    choices: u64,
    /// Observations that the agent has made in this life.
    learned: u64,
    /// The newest that the coordinator said about how much there is to hear.
    news: Option<News>,
    /// Observations that the coordinator had when this agent first heard of it.
    first_count: u64,
    /// Observations that the coordinator had taken in when it sent the base, and own ones that it took in since.
    base_total: u64,
    /// What others have lost so far because of what is withheld.
    withheld: f64,
    /// Whether there is a question without an answer: a pull, or at first the greeting, which the coordinator answers
    /// with what there is to hear.
    asking: bool,
    estimates: Estimates,
    /// How far rewards are from what the view predicts.
    surprise: Surprise,
}

/// How far rewards are from what the view predicts, where the world may change.
///
/// z² is the squared error of a prediction in units of its variance, σ²(1 + w²): 1 on average in a world that stands
/// still.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Surprise {
    /// The average of z² over recent observations (weights 0.9^i), 1 or more when it is used.
    average: f64,
    /// Σ(z² − 2) since the last upload, never below zero.
    sum: f64,
}

/// Surprise since the last upload at which the buffer is pushed whatever the price. In a world that stands still one
/// observation in a thousand brings so much.
const ALARM: f64 = 10.0;

/// What only [`Agent::prepare`] looks at. A host that replays its journal after a crash may give other
/// values than before: they decide when the agent asks, never what an upload holds.
#[derive(Clone, Debug, PartialEq)]
struct Estimates {
    /// The time of the last interaction.
    seen: Option<Tick>,
    /// The time of the interaction at which the news was heard.
    heard: Option<Tick>,
    /// Sum and weight of loss × observations over recent choices.
    doubt: f64,
    doubt_weight: f64,
    /// By how much the federation's evidence probably exceeds that of the view: a ratio ≥ 1.
    growth: f64,
    /// The same when the agent last asked.
    asked_growth: f64,
}

impl Default for Estimates {
    fn default() -> Self {
        Self { seen: None, heard: None, doubt: 0.0, doubt_weight: 0.0, growth: 1.0, asked_growth: 1.0 }
    }
}

impl ExchangeAgent {
    pub(crate) fn new(
        name: &'static str,
        model: &ModelConfig,
        config: &ExchangeConfig,
        rule: Rule,
        dimension: usize,
    ) -> Self {
        Self {
            name,
            view: Belief::new(model.model(dimension)),
            rule,
            width: config.width(model, dimension),
            noise: model.noise,
            config: config.clone(),
            choices: 0,
            learned: 0,
            news: None,
            first_count: 0,
            base_total: 0,
            withheld: 0.0,
            asking: true,
            estimates: Estimates::default(),
            surprise: Surprise { average: 1.0, sum: 0.0 },
        }
    }

    /// Compares a reward with its prediction. The caller has checked both.
    fn be_surprised(&mut self, arm: &[f64], reward: f64) {
        let model = self.view.model();
        let error = reward - model.estimate().iter().zip(arm).map(|(theta, x)| theta * x).sum::<f64>();
        let mut coordinates = arm.to_vec();
        model.to_factor_coordinates(&mut coordinates);
        let squared_width: f64 = coordinates.iter().map(|v| v * v).sum();
        let squared = error * error / ((self.noise * self.noise).max(1e-12) * (1.0 + squared_width));
        // One observation that cannot be explained at all must not count for ever.
        let squared = squared.min(1e4);
        let Surprise { average, sum } = self.surprise;
        self.surprise = Surprise {
            average: MEMORY * average + (1.0 - MEMORY) * squared,
            sum: (sum + squared - 2.0).max(0.0),
        };
    }

    /// The standard deviation of the noise, or more where rewards are further from predictions than that.
    fn spread(&self) -> f64 {
        // A share of surprise is chance: the average is below 2 nearly always in a world that stands still.
        self.noise * (self.surprise.average / 2.0).max(1.0).sqrt()
    }

    /// τ: how many observations the federation makes between two of this agent. Before the agent has seen
    /// that, it assumes that all agents act equally often.
    fn interval(&self, news: &News) -> f64 {
        let grown = news.total().saturating_sub(self.first_count);
        ((news.agents + grown) as f64 / (1 + self.learned) as f64).max(1.0)
    }

    /// Whether the buffer may travel at all: enough observations, enough news, nothing on its way.
    fn may_send(&self) -> bool {
        !self.view.is_sending()
            && self.view.buffer().count() >= self.config.min_upload
            && self.view.fresh_information() > self.config.min_news.ln()
    }

    /// Pushes the buffer if withholding it costs more.
    fn push_if_due(&mut self) -> Option<Uplink> {
        let fresh = self.view.fresh_information();
        let cost = match self.news.as_ref().filter(|news| news.doubt > 0.0) {
            Some(news) => {
                let count = self.view.count().max(news.count) as f64;
                let interval = self.interval(news);
                cost_of_withholding(fresh, self.view.dimension(), news.doubt, interval, count)
            }
            // Until the coordinator has said what choices cost, every observation is worth a message.
            None => f64::INFINITY,
        };
        let price = self.config.price_of_push(self.view.dimension(), self.view.buffer().count());
        let surprised = self.surprise.sum > ALARM;
        let due = self.withheld + cost > price
            || fresh > self.config.max_withheld.ln()
            || surprised
            || self.is_growing_old();
        if due && self.may_send() {
            return Some(Uplink::Evidence(self.send()));
        }
        if cost.is_finite() {
            self.withheld += cost;
        }
        None
    }

    /// Whether what is withheld covers more of the window than one may miss, where the coordinator forgets.
    ///
    /// The coordinator takes an observation for as old as its arrival. Withheld for long, it would pass for new, and
    /// windows would seem worse than they are.
    fn is_growing_old(&self) -> bool {
        self.news.as_ref().is_some_and(|news| {
            let waited = self.interval(news) * self.view.buffer().count() as f64;
            news.forgotten > 0 && waited > self.config.min_growth * news.count as f64
        })
    }

    fn send(&mut self) -> EvidenceUpload {
        self.withheld = 0.0;
        self.surprise.sum = 0.0;
        let wrap = if self.config.rounding > 0.0 { Parcel::wrap_rounded } else { Parcel::wrap };
        self.view.send_wrapped(wrap)
    }

    /// ρ: how many times more observations the federation probably has than the view.
    fn growth(&self, now: Tick, news: &News) -> f64 {
        let heard = self.estimates.heard.unwrap_or(now);
        let elapsed = now.milliseconds().saturating_sub(heard.milliseconds()) as f64;
        let own = self.view.count().max(1) as f64;
        if news.forgotten > 0 {
            // The coordinator forgets as fast as it hears: what counts is what the agent has not heard of.
            let missed = news.total() as f64 + news.rate * elapsed - self.base_total as f64;
            return (1.0 + missed / own).max(1.0);
        }
        let theirs = news.count as f64 + news.rate * elapsed + self.view.buffer().count() as f64;
        (theirs / own).max(1.0)
    }

    /// The loss expected from a choice among `arms` with the view as it is, and the same if all that the view does not
    /// know is `age` times as much. Widths shrink as if the federation had `shrunk_by` times the evidence.
    fn losses(&self, arms: &Arms, shrunk_by: f64, age: f64) -> Result<(f64, f64), InputError> {
        let model = self.view.model();
        let width = self.width.of(model, self.view.count()) / shrunk_by.sqrt();
        model.score(arms.all(), |scores| {
            let optimistic = scores.means.iter().zip(scores.widths).map(|(mean, own)| mean + width * own);
            let played = match self.rule {
                Rule::Ucb(_) => best(optimistic)?,
                // What randomised rules will play is not known yet.
                _ => best(scores.means.iter().copied())?,
            };
            let loss = |age: f64| expected_loss(&scores, played, self.spread() * age);
            Ok((loss(1.0), if age > 1.0 { loss(age) } else { 0.0 }))
        })
    }

    /// Asks for what there is to hear, with the buffer if it is worth a message.
    fn ask(&mut self, doubt: f64, with_buffer: bool) -> Pull {
        self.asking = true;
        self.estimates.asked_growth = self.estimates.growth;
        let based_on = self.view.version();
        let upload = with_buffer.then(|| self.send());
        Pull { based_on, doubt, upload }
    }

    fn take_in(&mut self, answer: Answer) -> Result<Option<Uplink>, ProtocolError> {
        let Answer { pulled, number, version, news, snapshot, .. } = answer;
        if !(news.rate.is_finite() && news.rate >= 0.0 && news.doubt.is_finite() && news.doubt >= 0.0) {
            return Err(ProtocolError::Evidence("the news are not finite numbers"));
        }
        if snapshot.is_none() && news.version == Version(0) {
            // The answer to a greeting while nobody knows anything.
            self.asking = false;
            return Ok(None);
        }
        let authoritative = snapshot.as_ref().is_some_and(|snapshot| snapshot.authoritative);
        // Before there are news, the only question is the greeting.
        let answered = pulled || self.news.is_none();
        let (mut again, mut free) = (None, false);
        let arriving = self.view.in_flight().map_or(0, Evidence::count);
        let is_told = snapshot.is_some();
        match snapshot {
            Some(snapshot) => match self.view.adopt(&snapshot)? {
                // Late or repeated: what it says besides is as old.
                Adopted::Stale => {
                    self.asking &= !answered;
                    return Ok(None);
                }
                Adopted::Yes => self.estimates.growth = 1.0,
                Adopted::WithUpload => (self.estimates.growth, free) = (1.0, true),
                Adopted::Again(upload) => again = Some(upload),
            },
            None => free = self.view.acknowledge(number, version),
        }
        if is_told {
            self.base_total = news.total();
        } else if free {
            self.base_total = self.base_total.saturating_add(arriving);
        }
        self.asking &= !(answered || authoritative);
        if authoritative || self.news.as_ref().is_none_or(|known| known.version <= news.version) {
            if self.news.is_none() || authoritative {
                self.first_count = news.total();
            }
            self.news = Some(news);
            self.estimates.heard = self.estimates.seen;
        }
        Ok(match again {
            Some(upload) => Some(Uplink::Evidence(upload)),
            None if free && !self.view.buffer().is_empty() => self.push_if_due(),
            None => None,
        })
    }
}

impl Agent for ExchangeAgent {
    fn prepare(&mut self, now: Tick, _user: UserId, arms: &Arms) -> Result<Option<Uplink>, InputError> {
        check_arms(self.view.dimension(), arms)?;
        let Some(news) = self.news.clone() else {
            self.estimates.seen = Some(now);
            return Ok(None);
        };
        let growth = self.growth(now, &news);
        let forgets = news.forgotten > 0;
        let (shrunk_by, age) = if forgets { (1.0, relative_age(growth)) } else { (growth, 1.0) };
        let is_behind = growth >= 1.0 + self.config.min_growth;
        let losses = if is_behind { Some(self.losses(arms, shrunk_by, age)?) } else { None };
        self.estimates.seen = Some(now);
        self.estimates.heard.get_or_insert(now);
        self.estimates.growth = growth;
        let Some((loss, stale_loss)) = losses else { return Ok(None) };
        let e = &mut self.estimates;
        e.doubt = MEMORY * e.doubt + loss * self.view.count().max(1) as f64;
        e.doubt_weight = MEMORY * e.doubt_weight + 1.0;
        if self.asking {
            // The answer is late or never comes, because the coordinator refused the question. When twice as much
            // has probably happened as when it was asked, the agent asks again at its next interaction.
            self.asking = growth < 2.0 * e.asked_growth;
            return Ok(None);
        }
        let doubt = e.doubt / e.doubt_weight;
        let dimension = self.view.dimension();
        let worth = if forgets {
            stale_loss - loss
        } else {
            worth_of_pull(loss, growth, doubt, self.interval(&news))
        };
        if worth <= self.config.price_of_pull(dimension) && growth <= 1.0 + self.config.max_growth {
            return Ok(None);
        }
        // The next pull is about as far away as this one was from the last.
        let fresh = self.view.fresh_information();
        let cost = self.withheld + cost_of_withholding(fresh, dimension, doubt, growth - 1.0, 1.0);
        let price = self.config.price_of_push(dimension, self.view.buffer().count());
        let with_buffer = self.may_send() && cost > price;
        Ok(Some(Uplink::Pull(self.ask(doubt, with_buffer))))
    }

    fn prepare_again(&mut self, said: &Uplink) {
        if let Uplink::Pull(pull) = said {
            let with_buffer = pull.upload.is_some() && !self.view.is_sending();
            self.ask(pull.doubt, with_buffer);
        }
    }

    fn is_asking(&self) -> bool {
        self.asking
    }

    fn choose(&mut self, _user: UserId, arms: &Arms) -> Result<Choice, InputError> {
        // Others have explored since: an agent that is behind leaves to them what they probably did.
        // Where the coordinator forgets, what others learned meanwhile may not hold for long, and the agent explores.
        let forgets = self.news.as_ref().is_some_and(|news| news.forgotten > 0);
        let shrink = if forgets { 1.0 } else { 1.0 / self.estimates.growth.sqrt() };
        let (model, count) = (self.view.model(), self.view.count());
        let choice = self.rule.choose_shrunk(model, count, arms, self.choices, shrink)?;
        self.choices += 1;
        Ok(choice)
    }

    fn learn(&mut self, _user: UserId, arm: &[f64], reward: f64) -> Result<Option<Uplink>, InputError> {
        if self.config.is_wary() {
            check_observation(self.view.dimension(), arm, reward)?;
            self.be_surprised(arm, reward);
        }
        self.view.learn(arm, reward)?;
        self.learned += 1;
        Ok(self.push_if_due())
    }

    fn receive(&mut self, message: Downlink) -> Result<Option<Uplink>, ProtocolError> {
        match message {
            Downlink::Answer(answer) => self.take_in(answer),
            other => Err(ProtocolError::Unexpected { algorithm: self.name, message: other.kind() }),
        }
    }

    fn inspect(&self) -> AgentView<'_> {
        self.view.inspect()
    }

    fn save(&self) -> Vec<u8> {
        let e = &self.estimates;
        v1::ExchangeAgentState {
            choices: self.choices,
            view: Some(self.view.save()),
            learned: self.learned,
            news: self.news.as_ref().map(wire::news_to_wire),
            first_count: self.first_count,
            withheld: self.withheld,
            asking: self.asking,
            seen: e.seen.map(|tick| tick.0),
            heard: e.heard.map(|tick| tick.0),
            doubt: e.doubt,
            doubt_weight: e.doubt_weight,
            growth: e.growth,
            base_total: self.base_total,
            asked_growth: e.asked_growth,
            average_surprise: self.surprise.average,
            surprise: self.surprise.sum,
        }
        .encode_to_vec()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), DecodeError> {
        let state: v1::ExchangeAgentState = wire::decode(state)?;
        let view = self.view.restored(state.view.unwrap_or_default())?;
        let estimates = [state.doubt, state.doubt_weight, state.growth, state.asked_growth];
        let numbers = [state.withheld, state.average_surprise, state.surprise].into_iter().chain(estimates);
        if !numbers.into_iter().all(|v| v.is_finite() && v >= 0.0) || state.growth < 1.0 {
            return Err(DecodeError::invalid("agent", "an estimate is out of range"));
        }
        self.news = state.news.map(wire::news_from_wire).transpose()?;
        self.view = view;
        self.choices = state.choices;
        self.learned = state.learned;
        self.first_count = state.first_count;
        self.base_total = state.base_total;
        self.surprise = Surprise { average: state.average_surprise, sum: state.surprise };
        self.withheld = state.withheld;
        self.asking = state.asking;
        self.estimates = Estimates {
            seen: state.seen.map(Tick),
            heard: state.heard.map(Tick),
            doubt: state.doubt,
            doubt_weight: state.doubt_weight,
            growth: state.growth,
            // Version 0.1 did not keep it.
            asked_growth: state.asked_growth.max(1.0),
        };
        Ok(())
    }
}
