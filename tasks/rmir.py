"""Declare the MTEB task `RMIR`."""

from __future__ import annotations

from circus_bench.tasks.metadata import it2i_metadata
from circus_bench.tasks.retrieval import ComposedRetrieval


class RMIR(ComposedRetrieval):
    """See `ComposedRetrieval`; RMIR's own files have to be given (`circus-bench data make rmir/test --data DATA`)."""

    protocol = "rmir/test"
    by_group = True
    metadata = it2i_metadata(
        name="RMIR",
        description=(
            "Retrieve the image that answers a question about an input image, from a pool of 35,803 images; to find it "
            "takes one or two steps of functional, temporal or causal reasoning."
        ),
        reference="https://github.com/amazon-science/rmir",
        eval_langs={"full": ["eng-Latn"]},
        main_score="hit_rate_at_20",
        date=None,  # unknown
        task_subtypes=["Reasoning as Retrieval"],
        license="not specified",
        annotations_creators="LM-generated",
        sample_creation="LM-generated and verified",
        bibtex_citation=r"""
@inproceedings{li2026rmir,
  author = {Li, Yijiang and Kotian, Kunal and Marjaninejad, Ali and Friedenberg, Meir and Pavani, Kaushik and Dasgupta, Sunny},
  booktitle = {CVPR},
  title = {RMIR: A Benchmark Dataset for Reasoning-Intensive Multimodal Image Retrieval},
  year = {2026},
}
""",  # noqa: E501 - one field per line, as mteb's citations are written
    )
