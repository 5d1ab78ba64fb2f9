// A thread copies one channel of one layer's row. Rows are separate buffers: a switch names each.
const uint channel = thread_position_in_grid.x;
const uint layer = thread_position_in_grid.y;
const uint place = layer * uint(WIDTH) + channel;
switch (layer) {
    case 0: stacked[place] = row0[channel]; break;
    case 1: stacked[place] = row1[channel]; break;
    case 2: stacked[place] = row2[channel]; break;
    case 3: stacked[place] = row3[channel]; break;
    case 4: stacked[place] = row4[channel]; break;
    case 5: stacked[place] = row5[channel]; break;
    case 6: stacked[place] = row6[channel]; break;
    case 7: stacked[place] = row7[channel]; break;
    case 8: stacked[place] = row8[channel]; break;
    case 9: stacked[place] = row9[channel]; break;
    case 10: stacked[place] = row10[channel]; break;
    case 11: stacked[place] = row11[channel]; break;
    case 12: stacked[place] = row12[channel]; break;
    case 13: stacked[place] = row13[channel]; break;
    case 14: stacked[place] = row14[channel]; break;
    case 15: stacked[place] = row15[channel]; break;
    case 16: stacked[place] = row16[channel]; break;
    case 17: stacked[place] = row17[channel]; break;
    case 18: stacked[place] = row18[channel]; break;
    case 19: stacked[place] = row19[channel]; break;
    case 20: stacked[place] = row20[channel]; break;
    case 21: stacked[place] = row21[channel]; break;
    case 22: stacked[place] = row22[channel]; break;
    case 23: stacked[place] = row23[channel]; break;
    default: break;
}
