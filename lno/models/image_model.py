"""What FNO, U-FNO and LSM of thuml/Neural-Solver-Library share: points to an image and back.

    f = Stem(x, u)                    features of the points
    image = process(to image(f))      the model itself
    y = MLP(to points(image))

On a 2-D grid, the features are an image. Zeros at the ends of both axes fill it up to multiples of
16, and are cut off afterwards. (Where only one of the axes needs zeros, the published code cuts all
of the image off.) On point clouds, a learnt map and Fourier transforms lead to a latent image and
back; see `geometry_map`. These models predict at the observed points only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from lno.data.fields import Spec
from lno.models.geometry_map import Geometry, LatentGrid
from lno.models.layers import MLP
from lno.models.model import ModelConfig
from lno.models.same_points import SamePointsModel
from lno.models.stem import Stem

MULTIPLE = 16  # of the sizes of an image on a grid


@dataclass(frozen=True)
class ImageConfig(ModelConfig):
    """Sizes that all image-based models have.

    Args:
        width: the number of features of a point and channels of the image.
        reference: the number of reference points along each axis; the distances to them replace
            positions. Needs data on a 2-D grid. None: use positions.
        time_input: the last input channel is the time of the sample, which is embedded.
        cloud: the latent image of point clouds. None: the data's own 2-D grid.
    """

    width: int = 32
    reference: int | None = None
    time_input: bool = False
    cloud: LatentGrid | None = None

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {"reference": (1, 256)}


class ImageModel(SamePointsModel):
    """An image-based model: it defines `process`, which maps an image to an image.

    Attributes:
        head_ratio: hidden features of the last MLP, in multiples of the width.
    """

    head_ratio: int = 1
    embeds_time = True
    config: ImageConfig

    def __init__(self, spec: Spec, config: ImageConfig | None = None) -> None:
        super().__init__(spec, config)
        width, cloud = self.config.width, self.config.cloud
        self.needs_grid = cloud is None
        if cloud is None:
            self.require_plane(f"{type(self.config).__name__}(cloud=LatentGrid())")
        elif self.config.reference is not None:
            raise ValueError(
                f"{type(self.config).__name__}: reference points need a 2-D grid, got a latent "
                "grid for point clouds: pass reference=None"
            )
        self.stem = Stem(spec, width, self.config.reference, self.config.time_input)
        self.geometry = None if cloud is None else Geometry(spec, width, cloud)
        self.head = MLP(width, self.head_ratio * width, spec.out_channels, layers=0)

    @property
    def image_size(self) -> tuple[int, int]:
        """Rows and columns of the image that `process` reads."""
        if self.config.cloud is not None:
            return self.config.cloud.rows, self.config.cloud.columns
        rows, columns = self.require_plane()
        return rows + -rows % MULTIPLE, columns + -columns % MULTIPLE

    @abstractmethod
    def process(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The model itself: an image to an image."""

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        f = self.stem(x, u)
        if self.geometry is not None:
            waves = self.geometry.waves(x)
            image = self.process(self.geometry.to_image(f, waves, mask))
            return self.head(self.geometry.to_points(image, waves))
        (rows, columns), (height, width) = self.require_plane(), self.image_size
        image = f.unflatten(1, (rows, columns)).movedim(-1, 1)
        image = self.process(F.pad(image, (0, width - columns, 0, height - rows)))
        return self.head(image[..., :rows, :columns].flatten(2).mT)
