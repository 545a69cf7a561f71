"""Paper 001, Zhang, Singh, Latham & Saxe: several heads of linear attention, one eigenvector after another."""
