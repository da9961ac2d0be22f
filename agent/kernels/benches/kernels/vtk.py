"""Pictures of a volume by VTK's fixed-point ray caster, on one thread.

A JSON object, the only argument, says what is seen and from where. For each line that comes in, a
picture is taken, and a line says how many milliseconds of CPU time that took, without showing it.
At the end the last one is written: single-precision red, green, blue and opacity, the top row first.
"""

import array
import ctypes
import json
import sys
import time

import vtk


def volume(scene):
    reader = vtk.vtkImageReader2()
    reader.SetFileName(scene["volume"])
    reader.SetFileDimensionality(3)
    reader.SetDataScalarTypeToUnsignedChar()
    last = scene["side"] - 1
    reader.SetDataExtent(0, last, 0, last, 0, last)
    reader.Update()

    # As far apart as ours, along the ray and from ray to ray.
    mapper = vtk.vtkFixedPointVolumeRayCastMapper()
    mapper.SetInputData(reader.GetOutput())
    mapper.SetNumberOfThreads(1)
    mapper.AutoAdjustSampleDistancesOff()
    mapper.LockSampleDistanceToInputSpacingOff()
    mapper.SetSampleDistance(1.0)
    mapper.SetImageSampleDistance(1.0)
    mapper.IntermixIntersectingGeometryOff()

    opacity, colour = vtk.vtkPiecewiseFunction(), vtk.vtkColorTransferFunction()
    for value, *channels, share in scene["points"]:
        opacity.AddPoint(value, share)
        colour.AddRGBPoint(value, *channels)
    looks = vtk.vtkVolumeProperty()
    looks.SetInterpolationTypeToLinear()
    looks.SetScalarOpacityUnitDistance(1.0)
    looks.SetScalarOpacity(opacity)
    looks.SetColor(colour)
    if scene["light"]:
        ambient, diffuse, specular, shininess = scene["light"]
        looks.ShadeOn()
        looks.SetAmbient(ambient)
        looks.SetDiffuse(diffuse)
        looks.SetSpecular(specular)
        looks.SetSpecularPower(shininess)

    prop = vtk.vtkVolume()
    prop.SetMapper(mapper)
    prop.SetProperty(looks)
    return prop


def window(scene, prop):
    renderer = vtk.vtkRenderer()
    renderer.AddVolume(prop)
    # As the one that it makes itself, and with light from everywhere too.
    light = vtk.vtkLight()
    light.SetLightTypeToHeadlight()
    light.SetAmbientColor(1, 1, 1)
    renderer.AddLight(light)
    camera = renderer.GetActiveCamera()
    camera.SetPosition(scene["eye"])
    camera.SetFocalPoint(scene["target"])
    camera.SetViewUp(scene["up"])
    camera.SetViewAngle(scene["fov_degrees"])
    renderer.ResetCameraClippingRange()
    made = vtk.vtkRenderWindow()
    made.SetOffScreenRendering(1)
    made.SetMultiSamples(0)
    made.SetSize(scene["size"])
    made.AddRenderer(renderer)
    return made


def write(mapper, scene):
    image = mapper.GetRayCastImage()
    width, height = scene["size"]
    (across, _), (used, rows) = image.GetImageMemorySize(), image.GetImageInUseSize()
    left, bottom = image.GetImageOrigin()
    # "_<address>_p_void": four numbers of fifteen bits a pixel, the bottom row first.
    address = int(image.GetImage().split("_")[1], 16)
    numbers = (ctypes.c_uint16 * (4 * across * rows)).from_address(address)
    pixels = array.array("f", bytes(16 * width * height))
    for row in range(rows):
        top = height - 1 - (row + bottom)
        for at in range(4 * used):
            pixels[4 * (width * top + left) + at] = numbers[4 * across * row + at] / 32767.0
    with open(scene["picture"], "wb") as file:
        pixels.tofile(file)


def main():
    scene = json.loads(sys.argv[1])
    prop = volume(scene)
    shown = window(scene, prop)
    # Makes tables and gradients, and finds where there is anything to see.
    shown.Render()
    mapper = prop.GetMapper()
    print(vtk.vtkVersion.GetVTKVersion(), flush=True)
    for _ in sys.stdin:
        began = time.process_time()
        mapper.RenderSubVolume()
        print(1000 * (time.process_time() - began), flush=True)
    write(mapper, scene)


main()
