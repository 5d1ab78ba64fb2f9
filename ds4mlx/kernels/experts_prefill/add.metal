// A thread adds up one channel of one token: its slots in order, the shared expert last.
const uint channel = thread_position_in_grid.x;
const uint token = thread_position_in_grid.y;
float total = 0.0f;
for (uint slot = 0; slot < USED; slot++) {
    total += parts[row_offset(token * USED + slot, EMBEDDING_WIDTH) + channel];
}
const size_t place = row_offset(token, EMBEDDING_WIDTH) + channel;
y[place] = total + shared[place];
