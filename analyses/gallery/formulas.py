"""What is judged on each page, as the papers print it: a few formulas, in LaTeX, with the place they stand at.

Formulas of probes come from the catalogue. Where the printed one is off and another works, both are here.
"""

from dataclasses import dataclass

from probes.measuring.catalogue import PROBES


@dataclass(frozen=True)
class Formula:
    """What it gives, the formula in LaTeX, and where it is printed."""

    what: str
    latex: str
    source: str


def _of_probe(name: str) -> Formula:
    probe = PROBES[name]
    return Formula(name.replace("_", " "), probe.formula, probe.citation)


FORMULAS: dict[str, tuple[Formula, ...]] = {
    "fixed_point": (
        Formula(
            "fixed point, printed",
            r"p_2 q_1 \to \Bigl[\tfrac{N+1}{N} S + \tfrac{1}{N} \operatorname{Tr} S\Bigr]^{-1}",
            "below Eq 10",
        ),
        Formula(
            "fixed point, exact",
            r"a_\alpha = \frac{N}{(N+1)\, s_\alpha} \Bigl[1 - \frac{R}{(N+1+d) \sqrt{s_\alpha m_\alpha}}\Bigr]",
            "ours",
        ),
    ),
    "mode_trajectories": (
        Formula(
            "one mode",
            r"a(t) = \frac{a_\infty}{1 + (a_\infty / a_0 - 1)\, e^{-2 s^2 t}}",
            "Eq 13",
        ),
        Formula("its time", r"t^{*} = \frac{\ln (a_\infty / a_0)}{2 s^2}", "below Eq 13"),
        Formula("conserved", r"\lVert p_2 \rVert^2 - \lVert q_1 \rVert^2", "A.12"),
    ),
    "loss_plateaus": (
        Formula(
            "expected loss, exact",
            r"L = \tfrac12 \sum_a m_a s_a \Bigl[\tfrac{N+1}{N} s_a^2 p_a^2 q_a^2 + \tfrac{1}{N} p_a^2 T"
            r" - 2 p_a q_a s_a + 1\Bigr], \quad T = \sum_b s_b^2 q_b^2",
            "ours; Eq 14 leaves T out",
        ),
    ),
    "timescale_separation": (
        Formula(
            "autocorrelation of the loss",
            r"A(\tau) = \tfrac{1}{n} \sum_t \bigl(L_t - L_\infty\bigr) \bigl(L_{t+\tau} - L_\infty\bigr)",
            "section 4, of the loss above its end",
        ),
        _of_probe("marginalized_effective_rank"),
    ),
    "icl_emergence": (
        _of_probe("marginalized_effective_rank"),
        _of_probe("subspace_distance"),
        _of_probe("subspace_drift"),
    ),
    "grokking": (
        _of_probe("effective_rank"),
        _of_probe("subspace_distance"),
        _of_probe("subspace_drift"),
    ),
    "published_models": (
        _of_probe("marginalized_effective_rank"),
        _of_probe("subspace_distance"),
    ),
    "live_monitor": (
        Formula("when a mode is learned", r"t^{*} = \frac{\ln (a_\infty / a_0)}{2 s^2}", "paper 000, below Eq 13"),
    ),
    "multi_head_plateaus": (
        Formula(
            "loss of what the heads do together",
            r"L(M) = \sum_d \lambda_d - 2 \sum_d \lambda_d^2 M_{dd} + \sum_{d e} a_d M_{de}^2 \lambda_e",
            "Eqs 16-18",
        ),
    ),
    "multi_head_reduced": (
        Formula("first plateau, printed", r"t_1 = \frac{1}{\lambda_1^2\, v(0)}", "Eq 38"),
        Formula("end of a head", r"v \to (\lambda / a)^{1/3}", "Eq 6a"),
        Formula("a head on its way", r"\dot{v} = \lambda^2 v^2 - \lambda a v^5", "Eq 7"),
        Formula("time, corrected", r"\lambda^2 t = \int \frac{dv}{v^2 - (a / \lambda)\, v^5}", "Eq 37 has v² there"),
    ),
    "multi_head_fixed_points": (
        Formula(
            "what the heads do at a fixed point",
            r"\sum_i v_i\, k_i q_i^{T} = \sum_{d \in S} \frac{\lambda_d}{a_d}\, e_d e_d^{T}",
            "Eqs 3, 4, one for each of the 2^D sets S",
        ),
    ),
    "multi_head_ranks": (
        Formula(
            "what H heads of rank R do together", r"M = \sum_{i=1}^{H} v_i \sum_{r=1}^{R} k_{ir}\, q_{ir}^{T}", "Eq 45"
        ),
        Formula("conserved in a head", r"\sum_r \lVert k_r \rVert^2 - v^2", "Eq 50"),
    ),
    "multi_head_repeated": (
        Formula(
            "levels of the loss",
            r"L(M_m) = \operatorname{tr} \Lambda - \sum_{d \le m} \frac{\lambda_d}{1 + (1 + \operatorname{tr} \Lambda / \lambda_d) / N}",
            "Eq 5",
        ),
    ),
    "multi_head_variants": (
        Formula("a plateau lasts", r"t \propto 1 / w_\mathrm{init}", "Appendix B.2, by homogeneity"),
        Formula("context lengths enter through", r"\mathbb{E}(1/N)", "Eq 11"),
    ),
    "multi_head_algorithm": (
        Formula(
            "distance to principal component regression", r"\propto N^{-1/2}", "section 3.3; from Eq 8 along the runs"
        ),
    ),
    "merged_weights_flow": (
        Formula("limit", r"u\, U \to \Gamma^{-1}, \quad u^2 = \lVert U \rVert_F^2", "Eq 4.1"),
        Formula(
            "with", r"\Gamma = \tfrac{N+1}{N} \Lambda + \tfrac{1}{N} \operatorname{tr}(\Lambda)\, I", "Theorem 4.1"
        ),
        Formula("from", r"\sigma^2\, \lVert \Gamma \rVert\, \sqrt{d} < 2", "Theorem 4.1"),
    ),
    "merged_weights_landscape": (
        Formula(
            "inequality of Polyak and Lojasiewicz",
            r"\lVert \nabla \ell \rVert^2 \ge \mu\, (\ell - \min \ell)",
            "Lemma 5.4, with mu of Eq 5.7",
        ),
        Formula(
            "limit of u, corrected",
            r"u \to \left[ \sum_i \xi_i^2 / \gamma_i^2 \right]^{1/4}",
            "Eq C.15 lacks the squares",
        ),
    ),
    "merged_weights_errors": (
        Formula(
            "error on a new prompt of M examples",
            r"\mathbb{E}\, (\hat{y} - y)^2 = \mathrm{best}"
            r" + \tfrac{1}{M} \operatorname{tr}(\Gamma^{-1} \Lambda\, \Gamma^{-1} \Sigma)"
            r" + \lVert (\Gamma^{-1} \Lambda - I)\, a \rVert_\Lambda^2",
            "Eq 4.6",
        ),
    ),
    "merged_weights_shifts": (
        Formula(
            "with queries of another covariance",
            r"\mathrm{best} + \tfrac{1}{M} \operatorname{tr}(\Gamma^{-1} \Lambda_q \Gamma^{-1} \Sigma)"
            r" + \lVert (\Gamma^{-1} \Lambda - I)\, a \rVert_{\Lambda_q}^2",
            "Eq 4.6 with the query's own covariance",
        ),
    ),
    "depth_isotropic": (
        Formula("one layer ends at, printed", r"(1 + \alpha)^{-2}", "below Eq 8"),
        Formula("one layer ends at, corrected", r"\frac{1}{1 + \alpha}", "ours"),
    ),
    "depth_whitening": (
        Formula("time law, printed", r"L \propto t^{-\beta / (\nu + \nu\beta + 1)}", "Eq 89"),
        Formula("time law, corrected", r"L \propto t^{-\nu\beta / (\nu\beta + 2\nu + 1)}", "ours"),
    ),
    "depth_time": (
        Formula("time", r"L \propto t^{-\beta / (2 + \beta)}", "Eqs 18, 97"),
        Formula("depth", r"L \propto (\mathrm{depth})^{-\beta}", "Eqs 18, 100"),
        Formula("best γ, corrected", r"\gamma \to 2 L / \lambda_1", "Eq 99 has half of it"),
    ),
    "depth_width": (
        Formula("width law, printed", r"L \propto N^{-\nu\beta}", "Eqs 18, 113"),
        Formula("width law, corrected", r"L \propto N^{-\nu \min(\beta, 1)}", "ours"),
        Formula("context law, corrected", r"L \propto P^{-\nu \min(\beta, 2)}", "ours"),
    ),
    "depth_shape": (
        Formula("best shape, printed", r"\mathrm{depth} \propto N^{\nu}", "Result 8"),
        Formula(
            "best shape, corrected, β above 1",
            r"\mathrm{depth} \propto N^{1/(\beta - 1 + 1/\nu)}",
            "ours, at fixed t P² N² L",
        ),
    ),
    "depth_attention": (
        Formula(
            "full attention, corrected",
            r"\frac{dw}{dt} = 2 w^4 \operatorname{tr} \Lambda^2 \Omega\, (1 - 2 w^5 \Lambda / L)^{2L - 1}",
            "Eq 21 lacks 1/L and the factor 2",
        ),
        Formula("time", r"L \propto t^{-5\beta / (5\beta + 2)}", "Eq 22"),
    ),
    "depth_softmax": (
        Formula(
            "one layer",
            r"h_\mu \mathrel{+}= \tfrac{1}{L} \sum_\nu \operatorname{softmax}_\nu(h_\nu^T W_k^T W_q h_\mu)\, W_v h_\nu",
            "section 5.3",
        ),
    ),
    "depth_shallow": (
        Formula(
            "exact course",
            r"g_1' = g_1 + \eta (1 - \rho g_1), \quad \rho = 1 + \tfrac{D + 1}{P}",
            "ours, with a second line for Tr ΓᵀΓ",
        ),
        Formula("in-context loss", r"1 - 2 g_1 + \rho\, g_2", "ours; Eq 64 has 1 - 2 g₁ + g₂"),
    ),
    "sparse_solution": (
        Formula(
            "one task",
            r"\frac{df}{dt} = a\, (\Lambda - f) \sqrt{4 f^2 + 2 C}, \quad a = p\, \psi\, (\Lambda^2 + 1)",
            "Theorem 3.1",
        ),
        Formula("exact", r"\frac{dE}{dt} = p\, (\Lambda - f(E))", "ours, from Eq 9"),
    ),
    "sparse_general": (
        Formula("nearly sparse", r"\phi = \pm e_s + \zeta, \quad \zeta \sim N(0, \psi^{-2} I)", "Eq 116"),
        Formula("idempotent", r"H^2 = \mu H \;\Rightarrow\; a = p\, \mu", "Eq 117; printed with a = p ψ μ"),
    ),
    "sparse_scaling": (
        Formula("time", r"L \propto t^{-(\alpha - 1)/\alpha}", "Table 1"),
        Formula("size", r"L \propto D^{-(\alpha - 1)}", "Table 1"),
        Formula("compute", r"L \propto C^{-(\alpha - 1)/(\alpha + 1)}", "Table 1"),
    ),
    "sparse_softmax": (
        Formula("model", r"f = \bigl[V G \operatorname{softmax}(G^T W_K^T W_Q G)\bigr]_{s,\, \psi + 1}", "I.1"),
        Formula("time", r"L \propto t^{-(\alpha - 1)/(\alpha + \beta)}", "Table 2, said of softmax in I.1"),
    ),
    "sparse_capacity": (
        Formula("features", r"\phi \sim N(0, \Sigma_s), \quad \omega_k \propto k^{-\tau}", "Eqs 108, 109"),
        Formula("endless context", r"f = v_s^T S_s W_K^T W_Q\, \phi", "ours: softmax over Gaussian examples"),
    ),
    "calibration": (
        Formula(
            "false alarms",
            r"P(\text{a transition is reported} \mid \text{nothing happens}) \le \alpha = .01",
            "what find_transitions promises",
        ),
    ),
}
"""By the name of the page."""
